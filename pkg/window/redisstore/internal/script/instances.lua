-- instances.lua writes the entry of an instance, and counts the instances that share the logs.
--
-- KEYS[1]   the sorted set of the entries, each with the second of its last heartbeat
-- ARGV[1]   the entry
-- ARGV[2]   the seconds after which an entry expires
--
-- Reply: how many entries have not expired. If the server's clock is set back, instances count again
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
return redis.call('ZCARD', KEYS[1])
