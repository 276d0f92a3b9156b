-- settle.lua ends a stream that has reserved something of budgets, or whose end names costs. It is a part of
-- take.lua: it ends the stream, and makes the charges that follow from that the checks of take.lua, which have mode 3.
--
-- ARGV[4]   '>c8I7BI7': the stream; for how many microseconds its later checks are denied; 1 if it has not
--           reached the upstream, plus 2 if it was denied, so that costs count only where it holds something, plus 4 for
--           one log alone, plus 8 if the stream is known to have reserved nothing there; and the bytes that it has sent
-- ARGV[1]   '>I7', 0; then a check for each cost that the end names: of mode 3; 0 for an estimate, which counts only if
--           the stream has reserved nothing there; or 2 for a cost that counts only if it has
-- KEYS[1]   the value of the stream; the other keys are the logs of the costs. For one log alone, KEYS[1] is the
--           value of its holds and KEYS[2] the log, and ARGV[5] is what the stream knows of it: see holds.lua
--
-- Reply: '>BB', 1 if the stream had a hold, and how many values were removed that were not logs; and then, for
-- each log of a budget, '>BI2I7I7I7I7I7I4c0': the number of its cost, or 0; how many holds have expired since the last
-- write, and their cost; what the stream had
-- reserved; what was charged; what remains; what other streams have reserved; and the name of the log.
--
-- It translates Reserved.Settle of package packed.
-- include holds.lua

local stream, deny, flags, sent = read('>c8I7BI7', ARGV[4])
local unreached, was_denied, alone = flags % 2 >= 1, flags % 4 >= 2, flags % 8 >= 4
local check_bytes, numbers = args, {}
for j = 2, #KEYS do
  numbers[KEYS[j]] = #args >= 38 * j - 31 and j - 1
end
keys, args, settled, released, corrupted = {}, string.sub(args, 1, 7), {}, 0, 0

-- The logs of the stream, of which a budget has the two checks in pair; then those of the costs, which are unknown if the stream
-- has reserved nothing there.
local logs, needs_ends
if alone then
  logs, needs_ends = {{name = KEYS[1], pair = ARGV[5], unknown = flags >= 8}}, true
else
  local k = known(KEYS[1])
  if k.ended > 0 then
    return '\0\0'
  end
  logs = k.logs
  for j = 1, #logs do
    if logs[j].pair then
      deny = math.max(deny, 10000000)
    else
      needs_ends = true
    end
  end
  if #KEYS > 1 and not was_denied then
    deny = math.max(deny, 10000000)
  end
  if deny > 0 then
    local till = math.ceil((clock + deny) / 1000)
    call('SET', KEYS[1], pack('>BI7', 167, till), 'PX', string.format('%d', math.ceil(deny / 1000) + 1000))
  else
    call('UNLINK', KEYS[1])
  end
end
if needs_ends then
  -- include adds.lua
  -- include ends.lua
end

local j, next_cost = 1, 2
while j <= #logs or next_cost <= #KEYS do
  local log = logs[j]
  if not log then
    local check = string.sub(check_bytes, 38 * next_cost - 68, 38 * next_cost - 31)
    if numbers[KEYS[next_cost]] and string.byte(check) ~= 2 then
      log = {name = KEYS[next_cost] .. ':r', pair = check .. check, unknown = true}
    end
    next_cost = next_cost + 1
  end
  j = j + 1
  if log and log.pair then
    -- Settle one log, also when its hold ends.
    local name, pair, unknown = log.name, log.pair, log.unknown
    local key = string.sub(name, 1, -3)
    local number = numbers[key]
    local check = number and string.sub(check_bytes, 38 * number - 30, 38 * number + 7) or string.sub(pair, 39)
    if not number and read('>I2', check, 3) == 4 then
      -- The period of a calendar may be over. The check has the period of now.
      local last, length, after = read('>I6xxxxxxxxxxxxxxI4I4', check, 11)
      if clock >= (last + after) * 1000000 and after > 0 then
        local passed = math.floor((math.floor(clock / 1000000) - last - after) / after)
        check = string.sub(check, 1, 10) .. pack('>I6', last + (passed + 2) * after) .. string.sub(check, 17, 30) .. pack('>I4I4', after, after)
      end
    end
    local bytes, both, silent = redis.pcall('GETRANGE', name, '0', '729'), string.sub(pair, 1, 38) .. check
    local s = type(bytes) == 'string' and view_holds(name, bytes, stream, both, log.ends)
    if not s then
      call('UNLINK', name)
      s, corrupted = view_holds(name, '', stream, both), corrupted + 1
    end
    local estimate = number and string.byte(check) == 0 -- mode enforce: only if the stream has reserved nothing
    if estimate and not unknown then
      number = nil
    end
    numbers[key] = nil
    local cost, due, reserved = number and read('>I7', check, 24) or 0, 0, s.cost
    if reserved > 0 then
      if number then
        -- The end names the cost.
      elseif unreached then
        cost = 0
      else
        cost = reserved
        if s.terms.factor > 0 then
          cost = math.min(cost, math.ceil(sent * s.terms.factor / 1000000))
        end
      end
      if s.terms.fill then
        due = s.used - s.reserved - (s.hold < s.passed and reserved or 0)
      end
      if s.terms.fill and large then -- otherwise none has expired
        large.pay(s)
      end
      if s.hold >= s.front then
        cut_hold(s, 0)
      else
        write_holds(s)
      end
      released = 1
    elseif unknown and s.ended > 0 then
      silent = true -- an earlier call for the same end has charged the log
    else
      if alone and deny > 0 and s.ended == 0 then
        finish(s, deny)
      end
      if not number or was_denied or s.terms.fill and not unknown then
        number, cost, silent = nil, 0, not s.written or not s.expired -- only to report them
      end
    end
    if not silent then
      keys[#keys + 1] = key
      args = args .. '\3\1' .. string.sub(check, 3, 23) .. pack('>I7', cost + due) .. string.sub(check, 31)
      settled[#keys] = {number = number or 0, reserved = reserved, due = due, holds = s, name = key}
    end
  elseif log then
    local got = drop(log.name, stream, 0, log.ends)
    released = math.max(released, got % 2)
    corrupted = corrupted + (got - got % 2) / 2
  end
end
n = #keys
