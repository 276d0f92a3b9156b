-- The common approximation: one counter for each window-long bucket. What the
-- previous bucket holds is taken to be spread evenly, and counts for the part of
-- it that the sliding window still covers.
--
-- KEYS[1]   the key; counters are named after it and the number of the bucket
-- ARGV[1]   the window in microseconds
-- ARGV[2]   the limit
-- ARGV[3]   the cost
--
-- Reply: 1 if allowed, else 0, and the hits that remain, rounded down.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- Step 1: estimate what was spent within the window that ends now.
local bucket = math.floor(now / window)
local current = KEYS[1] .. ':' .. string.format('%.0f', bucket)
local previous = KEYS[1] .. ':' .. string.format('%.0f', bucket - 1)
local counts = redis.call('MGET', current, previous)
local covered = 1 - (now % window) / window
local used = (tonumber(counts[1]) or 0) + (tonumber(counts[2]) or 0) * covered
if used + cost > limit then
  return {0, math.max(math.floor(limit - used), 0)}
end

-- Step 2: count. A new counter lives until it is not the previous counter any more.
redis.call('INCRBY', current, ARGV[3])
if not counts[1] then
  redis.call('PEXPIRE', current, math.ceil(2 * window / 1000))
end
return {1, math.floor(limit - used - cost)}
