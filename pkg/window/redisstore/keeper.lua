-- keeper.lua reads logs for an operator, or removes them.
--
-- KEYS[i]   a log, as in take.lua. All keys are on one slot.
-- ARGV[1]   '>I7', the deadline: an instant of this server's clock in microseconds; 0 for
--           none. A call that comes later does nothing.
-- ARGV[2]   the most bytes to return of each log
-- ARGV[3]   'read' or 'remove'
-- ARGV[4]   the channel on which to publish each key that is removed; empty: none
--
-- Reply: a list:
--   '>I7'     the server's clock in microseconds; nothing follows if the call was late
--   untold    how many messages could not be published
--   bytes     of each key; empty if there is no value, or if it is not a string
--
-- Steps:
--   1. Do nothing after the deadline.
--   2. For each key: read the bytes. With 'remove', unlink the key, whatever its type, and
--      publish two messages, also if there was no value: an instance may remember a denial
--      of a log that is gone.
--   3. Reply.
--
-- The first message is the key and ' reset'. An instance that knows it forgets what it
-- remembers, and spends no hit that it has reserved in the log before. The second message is
-- the key alone, as for a refund: instances of older versions know only that.

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local reply = {struct.pack('>I7', clock)}

local deadline = struct.unpack('>I7', ARGV[1])
if deadline > 0 and clock > deadline then
  return reply
end

local untold = 0
local function publish(message)
  local told = redis.pcall('PUBLISH', ARGV[4], message)
  if type(told) == 'table' then
    untold = untold + 1
  end
end

for i, key in ipairs(KEYS) do
  local bytes = redis.pcall('GETRANGE', key, '0', string.format('%d', ARGV[2] - 1))
  if type(bytes) == 'table' then
    if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
      return bytes
    end
    bytes = ''
  end
  reply[i + 2] = bytes
  if ARGV[3] == 'remove' then
    redis.call('UNLINK', key)
    if ARGV[4] ~= '' then
      publish(key .. ' reset')
      publish(key)
    end
  end
end
reply[2] = untold
return reply
