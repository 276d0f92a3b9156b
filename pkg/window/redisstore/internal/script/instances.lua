-- instances.lua writes the entry of an instance, counts the instances that share the logs, and lists them.
--
-- KEYS[1]   the sorted set of the entries, each with the second of its last heartbeat
-- ARGV[1]   the entry
-- ARGV[2]   the seconds after which an entry expires
-- ARGV[3]   how many entries to list; absent: none
-- ARGV[4]   how many bytes of each entry to list
--
-- Reply: how many entries have not expired, and if some are to be listed an array: that number, and
-- the entries that were written last. If the server's clock is set back, instances count again
-- with their next heartbeat. More than 10,000 entries are of no instances: removing them one by one
-- would keep the server busy.

local time = redis.call('TIME')
if redis.call('ZCARD', KEYS[1]) > 10000 then
  redis.call('UNLINK', KEYS[1])
end
redis.call('ZADD', KEYS[1], time[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], time[1] + ARGV[2], '+inf')
redis.call('EXPIRE', KEYS[1], ARGV[2])
local number = redis.call('ZCARD', KEYS[1])
if not ARGV[3] then
  return number
end
local reply = redis.call('ZRANGE', KEYS[1], 0, ARGV[3] - 1, 'REV')
for i, entry in ipairs(reply) do
  reply[i] = string.sub(entry, 1, ARGV[4])
end
table.insert(reply, 1, number)
return reply
