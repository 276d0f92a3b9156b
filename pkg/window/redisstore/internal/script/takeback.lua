-- takeback.lua takes back what take.lua has charged at one instant, and no more.
--
-- KEYS[i]   a log, as in take.lua
-- ARGV[1]   for each key, packed as '>I2I6I7I5':
--             unit     of the times in the log, in microseconds: 1 or 1,000
--             window   in microseconds
--             instant  that the charge was recorded at, in units
--             cost     at most what was charged there
--
-- Reply: one string, for each key '>I5I7':
--   taken  the cost that was removed from the log. It is zero if nothing counts at
--          that instant any more, or if the value is not a log of the window. It is
--          also zero if the log has more than 128 kB, or if the instant is more than 64
--          slots before the newest.
--   reset  microseconds until the log is empty
--
-- A refund takes the newest entries instead. Those may be later and belong to another
-- request. The rest of this charge would then expire too early, and the log would admit
-- too much.
--
-- Steps, for each key: read the log and its slots. Find the slot of the instant. Take the
-- cost out of it and of all later sums. Write the log anew. Answer.
--
-- A value that is not a log stays as it is. This is TakeBack of package windowtest once
-- more, byte by byte. The base, older slots, the clock, the expiry and the size of a ring
-- stay.

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local latest_clock = clock < 2 ^ 52 - 86400000000 and clock + 86400000000 or 2 ^ 52 -- as in take.lua

local pack, read, sub = struct.pack, struct.unpack, string.sub
local replies = {}

for i = 1, #KEYS do
  local unit, window, instant, cost = read('>I2I6I7I5', ARGV[1], 20 * i - 19)
  local key = KEYS[i]
  local bytes = redis.pcall('GETRANGE', key, '0', '131072')
  if type(bytes) == 'table' then
    if not string.find(bytes.err, 'WRONGTYPE', 1, true) then
      return bytes
    end
    bytes = ''
  end

  -- Read the slots, oldest first; nil if the value is not a log.
  local size = #bytes
  local small = unit == 1 and 144 or 146
  local kind, log_clock, base, expiry, slots, capacity
  if size >= 18 then
    kind, log_clock, base, expiry = read('>BI8I4I5', bytes)
  end
  if not log_clock or log_clock > latest_clock then
    slots = nil
  elseif kind == small and size % 9 == 0 and size <= 135 then
    slots = sub(bytes, 19)
  elseif kind == small + 1 and size > 131072 then
    slots, cost = sub(bytes, 19, 27), 0 -- the newest slot is enough for reset
  elseif kind == small + 1 and size >= 131 then
    local head, count, skip, copies
    head, count, capacity, skip, copies = read('>I4I4I4BB', bytes, 28)
    local copied = copies - skip
    if size == 131 + 9 * capacity and head < capacity and count <= capacity and copies <= 10 and copied >= 1 and copied <= count then
      local straight = math.min(count, capacity - head)
      slots = sub(bytes, 132 + 9 * head, 131 + 9 * (head + straight)) .. sub(bytes, 132, 131 + 9 * (count - straight)) .. sub(bytes, 19, 27)
    end
  end

  local taken, reset = 0, 0
  if slots and slots ~= '' then
    local total = #slots / 9
    local ref = (log_clock - log_clock % unit) / unit
    local edge = math.floor((math.max(clock, log_clock) - window) / unit) -- a slot of this time has just expired
    local function time_of(slot) -- from 1
      return ref + (read('>I5', slots, 9 * slot - 8) - ref + 2 ^ 39) % 2 ^ 40 - 2 ^ 39
    end

    local slot, first = total, math.max(total - 64, 1)
    while slot >= first and time_of(slot) ~= instant do
      slot = slot - 1
    end
    if slot >= first and instant > edge then
      local before = slot > 1 and read('>I4', slots, 9 * slot - 12) or base
      local holds = (read('>I4', slots, 9 * slot - 3) - before) % 2 ^ 32
      taken = math.min(cost, holds)
      if taken > 0 then
        local parts = {sub(slots, 1, 9 * slot - 9)}
        for later = taken < holds and slot or slot + 1, total do
          local low, sum = read('>I5I4', slots, 9 * later - 8)
          parts[#parts + 1] = pack('>I5I4', low, (sum - taken) % 2 ^ 32)
        end
        slots = table.concat(parts)
        total = #slots / 9
        if not capacity or total <= 6 then
          bytes = pack('>BI8I4I5', small, log_clock, base, expiry) .. slots
        else
          local count = total - 1
          local copies = math.min(count, 10)
          bytes = pack('>BI8I4I5', small + 1, log_clock, base, expiry) .. sub(slots, -9)
            .. pack('>I4I4I4BB', 0, count, capacity, 0, copies)
            .. sub(slots, 1, 9 * copies) .. string.rep('\0', 90 - 9 * copies)
            .. sub(slots, 1, 9 * count) .. string.rep('\0', 9 * (capacity - count))
        end
        redis.call('SET', key, bytes, 'KEEPTTL')
      end
    end

    local newest = total > 0 and time_of(total)
    if newest and newest > edge then
      reset = newest * unit + window - clock
    end
  end
  replies[i] = pack('>I5I7', taken, reset)
end
return table.concat(replies)
