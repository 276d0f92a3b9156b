-- Where Slidegate looks up who has an API key. Version 1.
--
-- PostgreSQL 14 or later. Apply it as the owner of the tables, with psql or with a
-- migration tool; a second time changes nothing. All of it is in a schema of its
-- own, and one transaction.
--
-- Slidegate itself only reads. A role for it, which needs nothing else:
--
--   CREATE ROLE slidegate LOGIN PASSWORD '…';
--   GRANT USAGE ON SCHEMA slidegate TO slidegate;
--   GRANT SELECT ON slidegate.subjects, slidegate.keys, slidegate.tiers TO slidegate;
--
-- A new customer with a key, whose digest "rls digest" prints:
--
--   INSERT INTO slidegate.subjects (id, tier) VALUES ('acme', 'starter');
--   INSERT INTO slidegate.keys (digest, subject) VALUES ('2c70…', 'acme');

BEGIN;

-- Here and in the functions, a name means PostgreSQL's own function, never one of the same
-- name in public.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Two sessions that apply this at the same time do it one after the other.
DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('slidegate schema')); END $$;

-- What exists already is no news.
SET LOCAL client_min_messages = warning;

CREATE SCHEMA IF NOT EXISTS slidegate;
COMMENT ON SCHEMA slidegate IS 'Slidegate: subjects and their API keys. Version 1.';

CREATE TABLE IF NOT EXISTS slidegate.subjects (
  id         text PRIMARY KEY CHECK (octet_length(id) <= 256 AND id COLLATE "C" ~ '^(?!ip:)[!-~]([ -~]*[!-~])?$'),
  tier       text,
  disabled   boolean NOT NULL DEFAULT false,
  overrides  jsonb CHECK (jsonb_typeof(overrides) = 'object'),
  labels     jsonb CHECK (jsonb_typeof(labels) = 'object'
                      AND NOT labels @? '$.keyvalue() ? (!(@.key like_regex "^[A-Za-z0-9_.-]{1,64}$") || @.value.type() != "string")'),
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE slidegate.subjects IS 'Who is limited.';
COMMENT ON COLUMN slidegate.subjects.id IS 'The only form of a subject that reaches logs, headers and metadata: visible ASCII and spaces inside. "ip:" begins what stands for who has no key.';
COMMENT ON COLUMN slidegate.subjects.tier IS 'A name of the tiers that the rules know. NULL: the default tier.';
COMMENT ON COLUMN slidegate.subjects.disabled IS 'Known, but no longer a customer: refused where API keys are checked.';
COMMENT ON COLUMN slidegate.subjects.overrides IS 'Limits of the subject''s own, by the name of the rule: {"per-key": {"unit": "minute", "requests_per_unit": 500}}.';
COMMENT ON COLUMN slidegate.subjects.labels IS 'Texts for metadata and headers: {"region": "eu"}. At most 32; names are letters, digits and _.-';
COMMENT ON COLUMN slidegate.subjects.updated_at IS 'Kept by a trigger. Slidegate does not read it.';

CREATE TABLE IF NOT EXISTS slidegate.tiers (
  name   text PRIMARY KEY,
  limits jsonb CHECK (jsonb_typeof(limits) = 'object')
);
COMMENT ON TABLE slidegate.tiers IS 'Limits that tiers carry for Envoy. The tiers file names all tiers; one without a row here has the limits of that file.';
COMMENT ON COLUMN slidegate.tiers.limits IS 'As in the tiers file: {"limit": {"unit": "minute", "requests_per_unit": 100}}, and several by name: {"limits": {"tokens": {…}}}.';

CREATE TABLE IF NOT EXISTS slidegate.keys (
  digest     text PRIMARY KEY CHECK (digest COLLATE "C" ~ '^[0-9a-f]{64}$'),
  subject    text NOT NULL REFERENCES slidegate.subjects (id) ON UPDATE CASCADE ON DELETE CASCADE,
  revoked_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS keys_subject ON slidegate.keys (subject);
COMMENT ON TABLE slidegate.keys IS 'API keys. A subject may have several, so that they can be rotated.';
COMMENT ON COLUMN slidegate.keys.digest IS 'HMAC-SHA-256 of the API key under the secret in secrets.key_file, or plain SHA-256 without one, in lower-case hex. Never the key.';
COMMENT ON COLUMN slidegate.keys.revoked_at IS 'If set, whatever the time, the key has no subject.';

-- tell has every Slidegate that listens ask again. The first 1000 changes of a
-- transaction are reported one by one. Beyond that all subjects count as changed: a million of
-- messages would take longer to read than to ask again for what is in use.
-- The channel is always slidegate_tiers, so tiers.postgres.channel must be left at
-- that, or this function and tell_all be replaced.
CREATE OR REPLACE FUNCTION slidegate.tell(kind text, names text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  -- Of this transaction, whatever the number of its statements: a cascade has one
  -- for each subject.
  told integer := coalesce(nullif(current_setting('slidegate.told', true), ''), '0')::integer + cardinality(names);
BEGIN
  PERFORM set_config('slidegate.told', least(told, 1001)::text, true);
  IF told > 1000 THEN
    PERFORM pg_notify('slidegate_tiers', '{"all":true}');
  ELSE
    PERFORM pg_notify('slidegate_tiers', json_build_object(kind, name)::text) FROM unnest(names) AS name;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION slidegate.tell_subjects() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  CASE TG_OP
    WHEN 'INSERT' THEN
      PERFORM slidegate.tell('subject', ARRAY(SELECT id FROM new_rows LIMIT 1001));
    WHEN 'DELETE' THEN
      PERFORM slidegate.tell('subject', ARRAY(SELECT id FROM old_rows LIMIT 1001));
    WHEN 'UPDATE' THEN
      PERFORM slidegate.tell('subject', ARRAY(
        SELECT DISTINCT id FROM (
          (SELECT id, tier, disabled, overrides, labels FROM old_rows EXCEPT SELECT id, tier, disabled, overrides, labels FROM new_rows)
          UNION ALL
          (SELECT id, tier, disabled, overrides, labels FROM new_rows EXCEPT SELECT id, tier, disabled, overrides, labels FROM old_rows)
        ) AS changed LIMIT 1001));
  END CASE;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION slidegate.tell_keys() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  CASE TG_OP
    WHEN 'INSERT' THEN
      PERFORM slidegate.tell('digest', ARRAY(SELECT digest FROM new_rows LIMIT 1001));
    WHEN 'DELETE' THEN
      PERFORM slidegate.tell('digest', ARRAY(SELECT digest FROM old_rows LIMIT 1001));
    WHEN 'UPDATE' THEN
      PERFORM slidegate.tell('digest', ARRAY(
        SELECT DISTINCT digest FROM (
          (SELECT digest, subject, revoked_at IS NULL FROM old_rows EXCEPT SELECT digest, subject, revoked_at IS NULL FROM new_rows)
          UNION ALL
          (SELECT digest, subject, revoked_at IS NULL FROM new_rows EXCEPT SELECT digest, subject, revoked_at IS NULL FROM old_rows)
        ) AS changed LIMIT 1001));
  END CASE;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION slidegate.tell_all() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_notify('slidegate_tiers', '{"all":true}');
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION slidegate.touch() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  NEW.updated_at := now();
  RETURN NEW;
END $$;

-- A trigger that sees all rows of a statement at once can have only one event.
CREATE OR REPLACE TRIGGER tell_insert AFTER INSERT ON slidegate.subjects
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_subjects();
CREATE OR REPLACE TRIGGER tell_update AFTER UPDATE ON slidegate.subjects
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_subjects();
CREATE OR REPLACE TRIGGER tell_delete AFTER DELETE ON slidegate.subjects
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_subjects();
CREATE OR REPLACE TRIGGER tell_truncate AFTER TRUNCATE ON slidegate.subjects
  FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_all();
CREATE OR REPLACE TRIGGER touch BEFORE UPDATE ON slidegate.subjects
  FOR EACH ROW EXECUTE FUNCTION slidegate.touch();

CREATE OR REPLACE TRIGGER tell_insert AFTER INSERT ON slidegate.keys
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_keys();
CREATE OR REPLACE TRIGGER tell_update AFTER UPDATE ON slidegate.keys
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_keys();
CREATE OR REPLACE TRIGGER tell_delete AFTER DELETE ON slidegate.keys
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_keys();
CREATE OR REPLACE TRIGGER tell_truncate AFTER TRUNCATE ON slidegate.keys
  FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_all();

CREATE OR REPLACE TRIGGER tell_all AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON slidegate.tiers
  FOR EACH STATEMENT EXECUTE FUNCTION slidegate.tell_all();

COMMIT;
