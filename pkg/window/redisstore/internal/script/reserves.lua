-- reserves.lua reads the holds of a log as the stream of a check sees them, into s. It is a part of take.lua and of
-- inflight.lua. The stream is the six bytes of step and the last two of most. ahead is
-- for how many milliseconds more the stream is denied, if the caller knows that it has ended.
-- 2^32 - 1 says instead that the stream was unknown when the caller noted the check.
--
-- A stream that holds nothing in a large log is not searched for. An end may come after the note of a check, so then
-- that can only deny.
local new, k, log = ahead == 4294967295
if ARGV[3] then
  local high = math.floor(step / 2 ^ 24)
  k = known(string.format('%s%06x%06x%04x}:s', ARGV[3], high, step % 2 ^ 24, most % 65536))
  for i = 1, #k.logs do
    log = log or k.logs[i].name == key and k.logs[i]
  end
  new, limit = not log, 0 -- it does not matter what has room
elseif pair then
  limit = read('>I7', pair, 55) -- of the log
end
local stream = pack('>I6I2', step, most % 65536)
s = type(bytes) == 'string' and view_holds(key, bytes, stream, pair, log and log.ends, new, limit, cost)
if not s and pair then
  call('UNLINK', key)
  s = view_holds(key, '', stream, pair)
  s.removed = true
end
if s then
  s.known, s.pair = k, pair
  s.ends = math.ceil((s.now + window) / 1000)
  if ahead > 0 and ahead < 4294967295 then
    s.ended = math.max(s.ended, math.ceil(clock / 1000) + ahead)
  end
  if k and k.till > 0 then
    s.ended = math.max(s.ended, k.ended, not log and #k.logs >= 192 and k.till or 0)
  end
  s.free = s.active < 20000
end
