-- PostgreSQL's image runs this file once in the compose stack, while its volume is empty, after the schema. It
-- creates a role for rls and some customers. The next request sees what you change:
--
--   docker compose exec postgres psql -U postgres slidegate -c "UPDATE slidegate.subjects SET tier = 'starter' WHERE id = 'hobby'"

-- The superuser needs no password inside the container. Without a password it cannot log in from outside.
ALTER ROLE CURRENT_USER PASSWORD NULL;

-- rls may only read.
\set password `cat /run/secrets/customers-password`
CREATE ROLE slidegate LOGIN PASSWORD :'password';
GRANT USAGE ON SCHEMA slidegate TO slidegate;
GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate;

-- bigco has a negotiated limit, which replaces the limits of its tier in that rule. gone is known, but no
-- longer a customer.
INSERT INTO slidegate.subjects (id, tier, disabled, overrides) VALUES
  ('acme',  'starter', false, NULL),
  ('hobby', 'free',    false, NULL),
  ('bigco', 'pro',     false, '{"per-subject": {"unit": "minute", "requests_per_unit": 60000}}'),
  ('gone',  'starter', true,  NULL);

-- The digests come from `printf 'demo-acme\n' | rls digest`. These keys are examples, so plain SHA-256 is
-- enough for them. For your own keys set secrets.key_file: the digests are then keyed.
INSERT INTO slidegate.keys (digest, subject, revoked_at) VALUES
  ('0ee3d7e3ae154954f584999ee8a2898c17694d98ad7cf282281363b71fcec8ae', 'acme',  NULL),   -- demo-acme
  ('ffa3f8b5031d3c74f63f3a74d2d644ecb233eb0a8f9f2744ae5909311dcc7d74', 'acme',  NULL),   -- demo-acme-new, which replaces it one day; both share the limits
  ('d042fdbba05dadefee7507161df38adce3e201433eeeb514eb0ff6b503238595', 'hobby', NULL),   -- demo-hobby
  ('b94b6624901f4cf53780229bb4ad5e018ef16f578bdf2cec57fb64f1ad8f0a11', 'bigco', NULL),   -- demo-bigco
  ('6ff2513a11648dd4963762c4d15142bc55bb34397b5de1cfd88042010de1cb0d', 'gone',  NULL),   -- demo-gone
  ('7738b7f4433b4fb6b579e74d7720f6cdac0cde11096b726edbd5fa3c7da6794c', 'hobby', now());  -- demo-revoked
