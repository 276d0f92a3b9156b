-- Fills a sorted set with a past: hits at an even pace.
--
-- KEYS[1]   the sorted set; what was there goes
-- ARGV[1]   the time of the first hit in microseconds
-- ARGV[2]   the time between two hits in microseconds
-- ARGV[3]   how many hits

redis.call('DEL', KEYS[1])
local first, pace, hits = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- A thousand at a time: what unpack returns has to fit on Lua's stack.
for from = 0, hits - 1, 1000 do
  local chunk = {}
  for i = from, math.min(from + 1000, hits) - 1 do
    local stamp = string.format('%.0f', first + i * pace)
    chunk[#chunk + 1] = stamp
    chunk[#chunk + 1] = stamp .. ':1'
  end
  redis.call('ZADD', KEYS[1], unpack(chunk))
end
return hits
