-- The common sliding-window log: a sorted set with one member for each hit.
-- It is here to compare with; nothing else uses it.
--
-- KEYS[1]   the sorted set
-- ARGV[1]   the window in microseconds
-- ARGV[2]   the limit
-- ARGV[3]   the cost
-- ARGV[4]   1 to get the waits too; 0 to get none, as with most such scripts
--
-- Reply: 1 if allowed, else 0; the hits that remain; and three waits in microseconds. They are
-- the time until the cost has room, until one unit has room, and until the log is empty.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- Step 1: drop what has expired. What is left is what counts.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local used = redis.call('ZCARD', KEYS[1])
local allowed = used + cost <= limit
if not allowed and ARGV[4] == '0' then
  return {0, limit - used}
end

-- Step 2: record a member for each hit. Redis runs one script at a time, so no
-- two calls have the same microsecond, and time and number make a member unique.
if allowed then
  local stamp = string.format('%.0f', now)
  for i = 1, cost do
    redis.call('ZADD', KEYS[1], stamp, stamp .. ':' .. i)
  end
  used = used + cost

  -- Let an idle key go.
  redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
  if ARGV[4] == '0' then
    return {1, limit - used}
  end
end

-- Step 3: the waits. The hit of a rank expires a window after its time.
local function expires(rank)
  local hit = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
  return hit[2] and hit[2] + window - now or 0
end

local retry, unit, reset = 0, 0, 0
if used >= limit then
  unit = expires(used - limit)
end
if not allowed then
  retry = cost == 1 and unit or expires(used + cost - limit - 1)
end
if used > 0 then
  reset = allowed and window or expires(-1)
end
return {allowed and 1 or 0, limit - used, retry, unit, reset}
