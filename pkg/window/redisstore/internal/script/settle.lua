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
-- include ends.lua

local stream, deny, flags, sent = read('>c8I7BI7', ARGV[4])
local unreached, was_denied, alone = flags % 2 >= 1, flags % 4 >= 2, flags % 8 >= 4
local check_bytes, checks, numbers = args, {}, {}
for j = 2, #KEYS do
  numbers[KEYS[j]] = #args >= 38 * j - 31 and j - 1
end
keys, replies, recorded, settled = {}, {}, {}, {released = 0, corrupt = 0}

-- charge charges a log, by the fields of a check.
local function charge(key, check, cost)
  keys[#keys + 1] = key
  checks[#checks + 1] = '\3\1' .. string.sub(check, 3, 23) .. pack('>I7', cost) .. string.sub(check, 31)
end

-- of returns the check of a cost that the end names.
local function of(number)
  return string.sub(check_bytes, 38 * number - 30, 38 * number + 7)
end

-- settle settles one log, by the name of its holds and what the stream knows of it, also when its hold ends. It is unknown if the stream has
-- reserved nothing there.
local function settle(name, pair, unknown, ends)
  local key = string.sub(name, 1, -3)
  local number = numbers[key]
  local check = number and of(number) or holds.current(string.sub(pair, 39))
  local terms = holds.terms(string.sub(pair, 1, 38) .. check)
  local s, corrupt = holds.read(name, stream, terms, ends)
  if corrupt then
    settled.corrupt = settled.corrupt + 1
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
      if terms.factor > 0 then
        cost = math.min(cost, math.ceil(sent * terms.factor / 1000000))
      end
    end
    if terms.bucket then
      due = s.used - s.reserved - (s.hold < s.passed and reserved or 0)
    end
    holds.settle(s)
    settled.released = 1
  else
    if unknown and s.ended > 0 then
      return -- an earlier call for the same end has charged the log
    elseif alone and deny > 0 and s.ended == 0 then
      holds.finish(s, deny)
    end
    if not number or was_denied or terms.bucket and not unknown then
      if not s.written or not s.expired then
        return
      end
      number, cost = nil, 0 -- only to report them
    end
  end
  charge(key, check, cost + due)
  settled[#keys] = {number = number or 0, reserved = reserved, due = due, holds = s, name = key}
end

if alone then
  settle(KEYS[1], ARGV[5], flags >= 8)
else
  local known = holds.stream(KEYS[1])
  if known.ended > 0 then
    return '\0\0'
  end
  for j = 1, #known.names do
    if known.pairs[j] then
      deny = math.max(deny, 10000000)
    end
  end
  if #KEYS > 1 and not was_denied then
    deny = math.max(deny, 10000000)
  end
  if deny > 0 then
    local till = math.ceil((clock + deny) / 1000)
    call('SET', KEYS[1], pack('>BI7', 167, till), 'PX', math.ceil(deny / 1000) + 1000)
  else
    call('UNLINK', KEYS[1])
  end
  for j = 1, #known.names do
    if known.pairs[j] then
      settle(known.names[j], known.pairs[j], false, known.ends[j])
    else
      local got = holds.drop(known.names[j], stream, 0, known.ends[j])
      settled.released = math.max(settled.released, got % 2)
      settled.corrupt = settled.corrupt + (got - got % 2) / 2
    end
  end
end
for j = 2, #KEYS do
  if numbers[KEYS[j]] and string.byte(of(j - 1)) ~= 2 then
    settle(KEYS[j] .. ':r', of(j - 1) .. of(j - 1), true)
  end
end
n = #keys
if n > 0 then
  args = string.sub(args, 1, 7) .. table.concat(checks)
end
