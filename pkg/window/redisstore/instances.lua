-- instances.lua writes the entry of an instance, and counts the instances that share the logs.
--
-- KEYS[1]   the sorted set of the entries, each with the second of its last heartbeat
-- ARGV[1]   the entry
-- ARGV[2]   the seconds after which an entry expires
--
-- Reply: how many entries have not expired. If the server's clock is set back, an instance that
-- has ended counts until its last heartbeat has expired by that clock.

local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] - ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
