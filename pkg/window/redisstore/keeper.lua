-- keeper.lua reads logs for an operator, or removes them.
--
-- KEYS[i]   a log, as in take.lua. All keys are on one slot.
-- ARGV[1]   '>I7', the deadline: an instant of this server's clock in microseconds; 0 for
--           none. A call that comes later does nothing.
-- ARGV[2]   the most bytes to return of each log
-- ARGV[3]   'read' or 'remove'
--
-- Reply: a list:
--   '>I7'     the server's clock in microseconds; nothing follows if the call was late
--   bytes     of each key; empty if there is no value, or if it is not a string
--
-- Steps:
--   1. Do nothing after the deadline.
--   2. For each key: read the bytes. With 'remove', unlink the key, whatever its type.
--   3. Reply.

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local reply = {struct.pack('>I7', clock)}

local deadline = struct.unpack('>I7', ARGV[1])
if deadline > 0 and clock > deadline then
  return reply
end

for i, key in ipairs(KEYS) do
  local bytes = redis.pcall('GETRANGE', key, '0', string.format('%d', ARGV[2] - 1))
  if type(bytes) == 'table' then
    if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
      return bytes
    end
    bytes = ''
  end
  reply[i + 1] = bytes
  if ARGV[3] == 'remove' then
    redis.call('UNLINK', key)
  end
end
return reply
