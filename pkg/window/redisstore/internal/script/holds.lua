-- holds.lua counts what streams hold now, for the policy in flight. take.lua runs it when it
-- reads the first such check, and streams.lua always. It translates inflight.go of package
-- packed, whose comments give the reasons. The same test vectors hold for both, byte by byte.
--
-- The format of a log is '>BI7BI7I4I4I2I2I2I2I7I6I6I7' and '>c8I6I7' for each slot. holds.go of package packed says what
-- they mean. A log of more than 32 slots is large: it is written in place.
--
-- What is known of a stream is a separate value, if ARGV[3] of take.lua has the beginning of
-- its name: '>BI7' (kind 166, or 167 after the end of the stream; until when, in milliseconds)
-- and '>I6I4c0' for each log in which the stream may hold something: the end of its hold in milliseconds, 0 if it is not known, and its name.
--
-- What is reserved of a budget is a value of the same format next to its log, on its slot: the name of the log and
-- ':r'. A check of unit 8 is about it, directly before the check of the log. It has mode 2. Its
-- fields mean: window, how long a hold lasts; step and most, the stream, as of a check in flight; limit, the cost of a byte in
-- millionths, 0 if it has none; cost, that of the other check; ahead, as in flight. Its answer says under remaining 1 if there
-- are too many holds, plus twice the number of holds that have expired since the last write, and under reset their cost, if it
-- has written; under unit what is reserved, and under retry 1 if the stream holds its cost since now. The value of a
-- stream has 2^30 more as the length of
-- such a name, and behind the name these two checks, without which no end could charge the log. It translates
-- budget.go of package packed.
--
-- It uses clock, latest_clock, call, pack and read of the script that includes it. Slots count from 0. The first 730
-- bytes are read first: 32 slots.

holds = {}

local find, sub = string.find, string.sub
local most_holds, most_slots_of_holds, most_logs = 20000, 40033, 192
local latest = latest_clock / 1000 + 400 * 86400 * 1000 + 1 -- the latest possible end

-- find_hold returns the slot of a stream's hold, from the slot front on, or nil.
local function find_hold(s, front)
  local bytes, from = s.bytes, s.skip + 21 * front + 1
  if s.large then
    bytes, from = call('GETRANGE', s.key, string.format('%d', 58 + 21 * front), string.format('%d', 57 + 21 * s.count)), 1
  end
  local at = find(bytes, s.stream, from, true)
  while at and (at - from) % 21 ~= 0 do
    at = find(bytes, s.stream, at + 1, true)
  end
  return at and front + (at - from) / 21
end

-- slot reads a slot: whether it is a hold, its end and its cost. If the bytes at hand do not have it, it reads 64
-- slots, of which it is the first, or with back the last.
local function slot(s, i, back)
  local at = s.skip + 21 * (i - s.from)
  if i < s.from or at + 21 > #s.bytes then
    s.from, s.skip = back and math.max(i - 63, 0) or i, 0
    s.bytes = call('GETRANGE', s.key, string.format('%d', 58 + 21 * s.from), string.format('%d', 1401 + 21 * s.from))
    at = 21 * (i - s.from)
  end
  local stream, ends, cost = read('>I8I6I7', s.bytes, at + 1)
  return stream > 0, ends, cost
end

-- What only large logs need: no other call pays for it.
local find_by_end, compact, set
local function prepare()
  -- find_by_end returns the slot of a stream's hold that ends at ends, or nil.
  function find_by_end(s, ends)
    local low, high = s.front, s.count
    while high - low > 64 do
      local middle = math.floor((low + high) / 2)
      local at = 66 + 21 * middle
      if read('>I6', call('GETRANGE', s.key, string.format('%d', at), string.format('%d', at + 5))) < ends then
        low = middle + 1
      else
        high = middle
      end
    end
    for i = low, s.count - 1 do
      local is, other = slot(s, i)
      if other > ends then
        return nil
      elseif is and sub(s.bytes, s.skip + 21 * (i - s.from) + 1, s.skip + 21 * (i - s.from) + 8) == s.stream then
        return i
      end
    end
  end

  -- compact makes a log small, whatever its size: bytes then have all of its holds, and no holes.
  function compact(s)
    local bytes = call('GETRANGE', s.key, string.format('%d', 58 + 21 * s.front), string.format('%d', 57 + 21 * s.count))
    local parts, begin, hold, active, passed = {}, 1, nil, 0, nil
    s.used, s.reserved = 0, 0
    for i = 0, s.count - s.front - 1 do
      local at = 21 * i + 1
      local stream, cost = read('>I8xxxxxxI7', bytes, at)
      if i + s.front == s.passed then
        passed = active
      end
      if stream == 0 then
        parts[#parts + 1] = sub(bytes, begin, at - 1)
        begin = at + 21
      else
        if i + s.front == s.hold then
          hold = active
        end
        s.used, active = s.used + cost, active + 1
        if i + s.front >= s.passed then
          s.reserved = s.reserved + cost
        end
      end
    end
    parts[#parts + 1] = sub(bytes, begin)
    s.bytes, s.from, s.skip, s.large = table.concat(parts), 0, 0, false
    s.front, s.passed, s.count, s.active, s.hold = 0, passed or active, active, active, hold
  end

  -- set writes a slot of a large log in place.
  function set(s, i, hold)
    s.slots = (call('SETRANGE', s.key, string.format('%d', 58 + 21 * i), hold) - 58) / 21
    if i >= s.from and s.skip + 21 * (i - s.from) < #s.bytes then
      s.bytes, s.skip = '', 0
    end
  end
end

-- head reads the header of a log as a stream sees it, which holds nothing there. bytes are the first 730
-- bytes or all. It returns nil if the value is not a log of holds. Of the result:
--   bytes      have the slots from the slot from on, behind skip bytes
--   front, passed, count, active, used, reserved, next, last, last_cost: see holds.go
--   stored     front, as the value says
--   large      it is written in place
--   hold       the slot of the stream, or nil; cost, its cost
function holds.head(key, bytes, stream)
  local s = { -- Lua makes room for 32 fields; one more costs as much again
    key = key, bytes = bytes, stream = stream, now = clock, from = 0, skip = 58, slots = 0, large = false,
    front = 0, stored = 0, passed = 0, count = 0, active = 0, used = 0, reserved = 0, next = 0, last = 0, last_cost = 0, length = 0, cost = 0, ended = 0,
  }
  if bytes == '' then
    return s
  end
  local size = #bytes
  if size < 58 then
    return nil
  elseif size == 730 then
    size = call('STRLEN', key)
  end
  local kind, log_clock, sum, mark, _
  kind, log_clock, mark, s.used, s.length, _, s.front, s.passed, s.count, s.active, s.reserved, s.next, s.last, s.last_cost = read('>BI7BI7I4I4I2I2I2I2I7I6I6I7', bytes)
  s.slots = (size - 58) / 21
  if kind ~= 165 or log_clock > latest_clock or (size - 58) % 21 ~= 0 or s.slots > most_slots_of_holds or s.front > s.passed or s.passed > s.count or s.count > s.slots
    or s.active == 0 or s.active > s.count - s.front or s.active > most_holds or s.reserved > s.used or s.last > latest then
    return nil
  end
  s.large, s.stored = s.count > 32, s.front
  if s.large and not set then
    prepare()
  elseif not s.large and s.count ~= s.slots then
    return nil
  end
  s.now = math.max(log_clock, clock)
  return s
end

-- terms returns what decides when a log forgets what was spent at an instant, by the two checks of a budget.
function holds.terms(pair)
  local hold, factor = read('>I6xxxxxxI7', pair, 5)
  local unit, window, step, limit, most, ahead = read('>I2I6I6I7xxxxxxxI4I4', pair, 41)
  local t = {unit = unit, window = window, step = step, most = most, ahead = ahead, length = hold / 1000, factor = factor, bucket = unit == 2, limit = limit}
  t.fill = t.bucket and 2 * (math.floor(math.min(limit * window / most, 34560000000000)) + 1)
  return t
end

-- gone returns when a hold counts no more, in microseconds.
local function gone(s, ends, cost)
  if not s.terms or cost == 0 then
    return ends * 1000
  elseif s.terms.bucket then
    return ends * 1000 + s.terms.fill -- a bucket without writes since is full then
  end
  local t, at = s.terms, ends * 1000
  local from = math.max(at - 1000 * (s.length > 0 and s.length or t.length), 0)
  if t.unit == 3 then
    return math.max(at, (math.floor(from / t.window) + 1) * t.window)
  elseif t.unit == 4 then
    local first, last = (t.step - t.most) * 1000000, t.step * 1000000
    return math.max(at, from < first and first or from < last and last or last + t.ahead * 1000000)
  elseif t.unit == 5 then
    return math.max(at, (math.floor(from / t.window) + 2) * t.window)
  end
  return math.max(at, from + t.window)
end

-- verify returns whether the header of a small log says what the slots are, of which none is a hole.
local function verify(s)
  local sum, rest, before, last_cost = 0, 0, 0, 0
  for i = s.front, s.count - 1 do
    local stream, ends, cost = read('>I8I6I7', s.bytes, 21 * i + 59)
    if stream == 0 or ends < before or i == s.passed and ends ~= s.next then
      return false
    end
    before, last_cost, sum = ends, cost, sum + cost
    if i >= s.passed then
      rest = rest + cost
    end
  end
  return sum == s.used and rest == s.reserved and s.active == s.count - s.front and before == s.last and last_cost == s.last_cost
end

-- bound makes the numbers possible, if the header contradicts the slots.
local function bound(s)
  if s.front == s.count then
    s.reserved, s.used = 0, 0
  end
  s.used, s.active = math.max(s.used, s.reserved), math.min(math.max(s.active, 0), s.count - s.front)
end

-- pass passes the holds that have expired, and drops those that count no more. It returns false if a small log
-- contradicts itself.
function holds.pass(s)
  if not s.large and s.count > 0 and not verify(s) then
    return false
  end
  local is, cost
  if s.passed < s.count and s.next * 1000 <= s.now then
    while s.passed < s.count do
      is, s.next, cost = slot(s, s.passed)
      if is then
        if s.next * 1000 > s.now then
          break
        end
        s.reserved = math.max(s.reserved - cost, 0)
        if cost > 0 then
          s.expired, s.expired_units = (s.expired or 0) + 1, (s.expired_units or 0) + cost
        end
        if not s.terms then
          s.active = s.active - 1
        end
      end
      s.passed = s.passed + 1
    end
  end
  if not s.terms then
    s.front, s.used = s.passed, s.reserved
  end
  while s.front < s.passed do
    local ends
    is, ends, cost = slot(s, s.front)
    if is then
      if gone(s, ends, cost) > s.now then
        break
      end
      s.used, s.active = s.used - cost, s.active - 1
    end
    s.front = s.front + 1
  end
  if s.front > s.stored then
    bound(s)
  end
  return true
end

-- seek finds the hold of the stream, which ends at ends, or nil or 0 if that is not known.
function holds.seek(s, ends)
  if s.count == s.front then
    return
  elseif s.large and ends and ends > 0 then
    s.hold = find_by_end(s, ends)
  else
    s.hold = find_hold(s, s.front)
  end
  if s.hold then
    local _, ends
    _, ends, s.cost = slot(s, s.hold)
    if s.cost == 0 and ends * 1000 > s.now then
      s.ended = ends
    end
  end
end

-- edit replaces so many slots of a small log by others, and removes those before the front.
local function edit(s, i, slots, others)
  s.bytes = sub(s.bytes, s.skip + 21 * s.front + 1, s.skip + 21 * i) .. others .. sub(s.bytes, s.skip + 21 * (i + slots) + 1)
  s.passed, s.count, s.front, s.skip = s.passed - s.front, s.count - s.front + #others / 21 - slots, 0, 0
end

-- write writes a log. If it is large, its slots are written already. If it shrinks, its key lives for long enough.
local function write(s, shrinks)
  if s.large then
    local passed = s.passed
    while s.trims_last and s.count > s.front and not slot(s, s.count - 1, true) do
      s.count = s.count - 1
    end
    while (s.front > s.stored or s.trims_first) and s.front < s.count and not slot(s, s.front) do
      s.front = s.front + 1
    end
    s.passed = math.min(math.max(s.passed, s.front), s.count)
    if s.count <= 32 or s.slots > 2 * s.active + 32 then
      compact(s)
    elseif s.passed < s.count and s.passed ~= passed then
      local _
      _, s.next = slot(s, s.passed)
    end
    if s.large and s.trims_last then
      local _
      _, s.last, s.last_cost = slot(s, s.count - 1, true)
    end
  elseif s.front > 0 then
    edit(s, s.front, 0, '')
  end
  s.written = true -- the holds that have expired are reported
  if s.active <= 0 or s.count == s.front then
    call('UNLINK', s.key)
    s.bytes, s.large, s.front, s.passed, s.count, s.active, s.used, s.reserved = '', false, 0, 0, 0, 0, 0, 0
    return
  end
  if not s.large then
    local _
    s.next = 0
    if s.passed < s.count then
      _, s.next = slot(s, s.passed)
    end
    _, s.last, s.last_cost = slot(s, s.count - 1)
  elseif s.passed == s.count then
    s.next = 0
  end
  local length, keep = 0, 0
  if s.terms then
    length = s.length > 0 and s.length or s.terms.length
    keep = math.ceil((gone(s, s.last, s.last_cost) - s.last * 1000) / 1000000)
  end
  local header = pack('>BI7BI7I4I4I2I2I2I2I7I6I6I7', 165, s.now, 0, s.used, length, keep, s.front, s.passed, s.count, s.active, s.reserved, s.next, s.last, s.last_cost)
  local life = math.max(s.last + 1000 * keep - math.floor(clock / 1000), 0) + 1000
  if s.large then
    call('SETRANGE', s.key, '0', header)
    if not shrinks then
      call('PEXPIRE', s.key, life)
    end
  elseif shrinks then
    call('SET', s.key, header .. s.bytes, 'KEEPTTL')
  else
    call('SET', s.key, header .. s.bytes, 'PX', life)
    s.large, s.slots = s.count > 32, s.count
  end
  s.stored = s.front
  if s.trims_first or s.trims_last then
    s.trims_first, s.trims_last = false, false
  end
end

-- put adds a hold of the stream.
local function put(s, ends, cost)
  local hold = pack('>c8I6I7', s.stream, ends, cost)
  if s.large and s.count > s.front and s.last > ends then
    compact(s)
  end
  if s.large then
    set(s, s.count, hold)
    if s.passed == s.count then
      s.next = ends
    end
    s.count, s.last, s.last_cost = s.count + 1, ends, cost
  else
    local i = s.count
    while i > s.passed do
      local _, other = slot(s, i - 1)
      if other <= ends then
        break
      end
      i = i - 1
    end
    edit(s, i, 0, hold)
  end
  s.used, s.reserved, s.active, s.cost = s.used + cost, s.reserved + cost, s.active + 1, cost
  write(s)
end

-- cut removes the hold of the stream, or replaces it by a smaller one.
local function cut(s, left)
  local i = s.hold
  s.used = math.max(s.used - s.cost + left, 0)
  if i >= s.passed then
    s.reserved = math.max(s.reserved - s.cost + left, 0)
  end
  local _, ends = slot(s, i)
  local hold = left > 0 and pack('>c8I6I7', s.stream, ends, left)
  if not hold then
    s.active, s.hold = s.active - 1, nil
  end
  if s.large then
    s.trims_first, s.trims_last = i == s.front, i == s.count - 1
    if s.trims_last and not hold then
      s.count = i
    else
      set(s, i, hold or pack('>I8I6I7', 0, ends, 0))
    end
  else
    if not hold and i < s.passed then
      s.passed = s.passed - 1
    end
    edit(s, i, 1, hold or '')
  end
  write(s, true)
  s.cost = left
end

-- pay drops the holds of a bucket that have expired, because the log is charged for them.
local function pay(s)
  while s.front < s.passed do
    if slot(s, s.front) then
      s.active = s.active - 1
    end
    s.front = s.front + 1
  end
  s.used = s.reserved
  bound(s)
end

-- known reads the value of a stream. It returns its kind, until when it matters in
-- milliseconds, and the names of its logs; nothing of a value that is something else. The last results have the two
-- checks of a budget, and the end of the hold, by the number of the name.
function holds.known(key)
  local bytes = redis.pcall('GETRANGE', key, '0', '1048575')
  if type(bytes) == 'table' and string.find(bytes.err, 'WRONGTYPE', 1, true) then
    call('UNLINK', key) -- SET would free what is there, however much it is, before it returns
  end
  if type(bytes) == 'table' or #bytes < 8 then
    return 0, 0, {}, {}, {}
  end
  local kind, till = read('>BI7', bytes)
  local names, pairs, ends, at = {}, {}, {}, 9
  while at <= #bytes do
    local length, more, hold_ends = #bytes, 0
    if #bytes - at >= 9 then
      hold_ends, length = read('>I6I4', bytes, at)
    end
    if length >= 2 ^ 30 then
      length, more = length - 2 ^ 30, 76
    end
    if at + 9 + length + more > #bytes or #names == most_logs then
      return 0, 0, {}, {}, {} -- a value that is planted must not keep the server busy
    end
    names[#names + 1] = sub(bytes, at + 10, at + 9 + length)
    ends[#names] = hold_ends
    at = at + 10 + length
    if more > 0 then
      pairs[#names] = sub(bytes, at, at + 75)
      local unit, window, step, limit, rate = read('>I2I6I6I7xxxxxxxI4', bytes, at + 40)
      if unit == 0 or unit > 5 and unit ~= 1000 or window < 10000 or step == 0 and (unit == 1 or unit == 1000)
        or unit == 2 and (rate == 0 or limit * window / rate > 2 * 34560000000000) or unit == 4 and step * 1000 > latest then
        return 0, 0, {}, {}, {} -- no check
      end
      at = at + 76
    end
  end
  if kind ~= 166 and kind ~= 167 or till > latest then
    return 0, 0, {}, {}, {}
  end
  return kind, till, names, pairs, ends
end

-- stream returns what is known of a stream: the name of its value, until when it is denied in
-- milliseconds or 0, until when its last hold may count, the names of its logs, and whether the
-- value was found. The checks of one call share it.
local streams = {}
function holds.stream(key)
  local known = streams[key]
  if not known then
    local kind, till, names, pairs, ends = holds.known(key)
    known = {key = key, found = kind > 0, ended = 0, till = 0, names = names, pairs = pairs, ends = ends}
    if till * 1000 > clock then
      known.till = till
      known.ended = kind == 167 and till or 0
    elseif kind == 167 then
      known.names, known.pairs, known.ends = {}, {}, {}
    end
    streams[key] = known
  end
  return known
end

-- has returns the number of a log in which a stream may hold something, or nil.
local function has(known, name)
  for i = 1, #known.names do
    if known.names[i] == name then
      return i
    end
  end
end

-- full returns whether a stream holds something in too many logs to do so in another one.
function holds.full(known, name)
  return known.till > 0 and #known.names >= most_logs and not has(known, name)
end

-- remember writes that a stream may hold something in a log until then, in milliseconds, with the two checks of a budget. The
-- hold ends at ends, or 0 says that this is not known. With
-- the kind 167 and no name, it writes that the stream has ended and is denied until then.
function holds.remember(known, name, till, kind, pair, ends)
  local number = name and (has(known, name) or #known.names + 1)
  if number and known.ends[number] == ends and till <= known.till then
    return
  elseif number then
    known.names[number], known.pairs[number], known.ends[number] = name, known.pairs[number] or pair, ends
  end
  known.till = kind and till or math.max(known.till, till)
  local parts = {pack('>BI7', kind or 166, known.till)}
  for i = 1, #known.names do
    local checks = known.pairs[i]
    parts[i + 1] = pack('>I6I4', known.ends[i], #known.names[i] + (checks and 2 ^ 30 or 0)) .. known.names[i] .. (checks or '')
  end
  call('SET', known.key, table.concat(parts), 'PX', math.max(known.till - math.floor(clock / 1000), 0) + 1000)
end

