-- The generic cell rate algorithm, which is how most libraries keep a token bucket: the key
-- holds one instant, when the bucket will be full again. A hit moves it on by the time that a
-- token takes, and is denied if that is more than a burst away.
--
-- KEYS[1]   the key
-- ARGV[1]   the time in which a whole burst comes back, in microseconds
-- ARGV[2]   the burst
-- ARGV[3]   the cost
--
-- Reply: 1 if allowed, else 0, the hits that remain, and the microseconds until the cost has
-- room and until the bucket is full.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local span, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- Step 1: when the bucket is full, before and after the hit.
local token = span / burst
local full = math.max(tonumber(redis.call('GET', KEYS[1])) or 0, now)
local after = full + cost * token
local early = after - now - span
if early > 0 then
  return {0, math.floor((span - full + now) / token), math.ceil(early), math.ceil(full - now)}
end

-- Step 2: record it. The key lives until the bucket is full.
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {1, math.floor(-early / token), 0, math.ceil(after - now)}
