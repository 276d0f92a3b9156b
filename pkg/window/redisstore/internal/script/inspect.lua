-- inspect.lua reads logs for an operator, or removes them.
--
-- KEYS[i]   a log, as in take.lua. All keys are on one slot.
-- ARGV[1]   the most bytes to return of each log
-- ARGV[2]   'read' or 'remove'. 'remove' also unlinks each key, whatever its type
--
-- Reply: a list:
--   '>I7'     the server's clock in microseconds
--   bytes     of each key; empty if there is no value, or if it is not a string

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local reply = {struct.pack('>I7', clock)}

for i, key in ipairs(KEYS) do
  local bytes = redis.pcall('GETRANGE', key, '0', string.format('%d', ARGV[1] - 1))
  if type(bytes) == 'table' then
    if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
      return bytes
    end
    bytes = ''
  end
  reply[i + 1] = bytes
  if ARGV[2] == 'remove' then
    redis.call('UNLINK', key)
  end
end
return reply
