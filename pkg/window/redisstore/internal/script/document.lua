-- document.lua replaces a document that nothing has replaced meanwhile.
--
-- KEYS[1]   the document: its version, and what it says
-- ARGV[1]   the version that it must have; empty: there is no document
-- ARGV[2]   the new document, which begins with another version of the same length
-- ARGV[3]   the milliseconds after which it expires
--
-- Reply: 1, or 0 if it has another version.

if redis.call('GETRANGE', KEYS[1], 0, 15) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
