-- streams.lua ends streams, and remembers in which logs they hold something.
--
-- ARGV[1] says what to do, and ARGV[2] is the stream, eight bytes:
--
--   'end'     KEYS[1] is the value of the stream. Ends the stream there and in all of its
--             logs. Only for a single server, because the logs are not in KEYS. Returns 1 if
--             the stream had a hold, otherwise 0; and 2 more for each log that was removed
--             because its header contradicts its holds. If the stream has reserved something of a budget, it
--             changes nothing and returns -1: see settle.lua
--   'forget'  KEYS[1] is the value of the stream. Ends the stream there. Returns '1' if it
--             had ended before, otherwise '0', and the names of its logs, also after an earlier end, which may not have dropped all of them. A name
--             begins with '\0', or, of a budget, with '\1' and the two checks
--   'drop'    KEYS are logs on one slot. Ends the stream there: a log in which it holds
--             nothing denies it. Returns the same as 'end'
--   'note'    KEYS[1] is the value of the stream. ARGV[3] is how long it may hold something
--             from now, in microseconds, and ARGV[4] and so on are the names of the logs, as for 'forget'.
--             Returns for how many milliseconds the stream is denied, because it has ended or
--             has too many logs; 0 if it is not; -1 if nothing was known of it
--
-- For the first three, ARGV[3] is how long later checks of the stream are denied, in
-- microseconds; 0 if they are not.
--
-- On a cluster, a stream and its logs are on several slots. A check is noted first, and then
-- charged. An end forgets first, and then drops. So if an end comes between the two steps of a
-- check, it drops the log that was noted, and the log denies the check.

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local latest_clock = clock < 2 ^ 52 - 86400000000 and clock + 86400000000 or 2 ^ 52 -- as in take.lua
local call, pack, read = redis.call, struct.pack, struct.unpack

local slot, gone, view_holds, write_holds, cut_hold, known, last_known, put_hold, remember, large, finish, drop

-- include holds.lua
-- include adds.lua
-- include ends.lua

local verb, stream, micros = ARGV[1], ARGV[2], tonumber(ARGV[3])
local till = math.ceil((clock + micros) / 1000)

-- dropAll ends the stream in logs.
local function dropAll(logs, deny)
  local released, corrupt = 0, 0
  for i = 1, #logs do
    local got = drop(logs[i].name, stream, deny, logs[i].ends)
    released, corrupt = math.max(released, got % 2), corrupt + got - got % 2
  end
  return released + corrupt
end

if verb == 'drop' then
  local logs = {}
  for i = 1, #KEYS do
    logs[i] = {name = KEYS[i]}
  end
  return dropAll(logs, micros)
end

local known = known(KEYS[1])
if verb == 'note' then
  if known.ended > 0 then
    return known.ended - math.floor(clock / 1000)
  end
  for i = 4, #ARGV do
    local pair = string.byte(ARGV[i]) == 1 and string.sub(ARGV[i], 2, 77) or nil
    local name = string.sub(ARGV[i], pair and 78 or 2)
    if known.till > 0 and #known.logs >= 192 then
      local is_in
      for j = 1, #known.logs do
        is_in = is_in or known.logs[j].name == name
      end
      if not is_in then
        return known.till - math.floor(clock / 1000)
      end
    end
    remember(known, name, till, nil, pair, 0)
  end
  return known.found and 0 or -1
end

-- The stream ends. A second end changes nothing.
local all = {known.ended > 0 and '1' or '0'}
for i = 1, #known.logs do
  local log = known.logs[i]
  if verb == 'end' and known.ended == 0 and log.pair then
    return -1
  end
  if log.pair then
    micros = math.max(micros, verb == 'forget' and 10000000 or 0)
  end
  all[i + 1] = (log.pair and '\1' .. log.pair or '\0') .. log.name
end
if verb == 'forget' then
  if known.ended == 0 and micros > 0 then
    remember(known, nil, math.ceil((clock + micros) / 1000), 167)
  end
  return all
elseif known.ended > 0 then
  return 0
elseif micros > 0 then
  call('SET', KEYS[1], pack('>BI7', 167, till), 'PX', math.ceil(micros / 1000) + 1000)
else
  call('UNLINK', KEYS[1])
end
return dropAll(known.logs, 0)
