-- holds.lua counts what streams hold now. take.lua runs it when it
-- reads the first such check or ends a stream, and streams.lua always. It translates inflight.go of package
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
-- bytes are read first: 32 slots. A log has 20,000 holds at most, and 40,033 slots; a stream has 192 logs. The latest possible
-- end is 400 days and a millisecond after latest_clock.
--
-- Each call of the script creates these functions, and each local variable that a function captures costs as much as several
-- look-ups of string.sub. So they capture few, and what few calls need is in the table large.

-- slot reads a slot: whether it is a hold, its end and its cost. If the bytes at hand do not have it, it reads 64
-- slots, of which it is the first, or with back the last.
function slot(s, i, back)
  local at = s.skip + 21 * (i - s.from)
  if i < s.from or at + 21 > #s.bytes then
    s.from, s.skip = back and math.max(i - 63, 0) or i, 0
    s.bytes = call('GETRANGE', s.key, string.format('%d', 58 + 21 * s.from), string.format('%d', 1401 + 21 * s.from))
    at = 21 * (i - s.from)
  end
  local stream, ends, cost = read('>I8I6I7', s.bytes, at + 1)
  return stream > 0, ends, cost
end

-- gone returns when a hold counts no more, in microseconds.
function gone(s, ends, cost)
  local t, at = s.terms, ends * 1000
  if not t or cost == 0 then
    return at
  elseif t.fill then
    return at + t.fill -- a bucket without writes since is full then
  end
  local from, window, to = at - 1000 * (s.length > 0 and s.length or t.length), t.window
  if from < 0 then
    from = 0
  end
  if t.unit == 3 then
    to = (math.floor(from / window) + 1) * window
  elseif t.unit == 4 then
    local first, last = (t.step - t.most) * 1000000, t.step * 1000000
    to = from < first and first or from < last and last or last + t.ahead * 1000000
  elseif t.unit == 5 then
    to = (math.floor(from / window) + 2) * window
  else
    to = from + window
  end
  return to > at and to or at
end

-- view_holds reads a log as a stream sees it, whose hold there ends at hold_ends, or nil or 0 if that is not known. bytes are the
-- first 730 bytes or all; pair has the two checks of a budget. It does not look for a new stream in a large log that
-- has no room for the cost below the limit. It returns nil if the value is not a log of holds, and also true if its header
-- contradicts the slots. Of the result:
--   bytes      have the slots from the slot from on, behind skip bytes
--   front, passed, count, active, used, reserved, next, last, last_cost: see holds.go
--   stored     front, as the value says
--   large      it is written in place
--   hold       the slot of the stream, or nil; cost, its cost
--   terms      decide when the log of a budget forgets what was spent at an instant
function view_holds(key, bytes, stream, pair, hold_ends, new, limit, cost)
  local now, used, length, front, passed, count, active, reserved, next_ends, last, last_cost = clock, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  local size = #bytes
  if size == 730 then
    size = call('STRLEN', key)
  end
  local slots = (size - 58) / 21
  if size > 0 then
    if size < 58 then
      return nil
    end
    local kind, mark, keep
    kind, now, mark, used, length, keep, front, passed, count, active, reserved, next_ends, last, last_cost = read('>BI7BI7I4I4I2I2I2I2I7I6I6I7', bytes)
    if kind ~= 165 or now > latest_clock or slots % 1 > 0 or slots > 40033 or front > passed or passed > count or count > slots
      or active == 0 or active > count - front or active > 20000 or reserved > used or last > latest_clock / 1000 + 34560000001 or count <= 32 and count < slots then
      return nil
    end
    if now < clock then
      now = clock
    end
    if count <= 32 then
      -- The header must say what the slots are, of which none is a hole.
      local sum, rest, before, cost, first = 0, 0, 0, 0, 59 + 21 * passed
      for at = 59 + 21 * front, size, 21 do
        local stream, ends
        stream, ends, cost = read('>I8I6I7', bytes, at)
        if stream == 0 or ends < before or at == first and ends ~= next_ends then
          return nil, true
        end
        before, sum = ends, sum + cost
        if at >= first then
          rest = rest + cost
        end
      end
      if sum ~= used or rest ~= reserved or active ~= count - front or before ~= last or cost ~= last_cost then
        return nil, true
      end
    end
  end
  local s = { -- Lua makes room for 32 fields; one more costs as much again
    key = key, bytes = bytes, stream = stream, now = now, from = 0, skip = 58, slots = slots, large = count > 32,
    front = front, stored = front, passed = passed, count = count, active = active, used = used, reserved = reserved,
    next = next_ends, last = last, last_cost = last_cost, length = length, cost = 0, ended = 0,
  }
  if pair then
    local hold, factor = read('>I6xxxxxxI7', pair, 5)
    local unit, window = read('>I2I6', pair, 41)
    s.terms = {unit = unit, window = window, length = hold / 1000, factor = factor}
    if unit == 2 or unit == 4 then
      local step, hits, most, ahead = read('>I6I7xxxxxxxI4I4', pair, 49)
      s.terms.step, s.terms.most, s.terms.ahead = step, most, ahead
      s.terms.fill = unit == 2 and 2 * (math.floor(math.min(hits * window / most, 34560000000000)) + 1)
    end
  end
  if count > 32 or front < passed or passed < count and next_ends * 1000 <= now then
    if not large then
      -- include large.lua
    end
    large.expire(s)
  end
  if s.front < s.count and not (new and s.large and (s.used >= limit or cost > limit - s.used)) then
    if s.large and hold_ends and hold_ends > 0 then
      s.hold = large.find_by_end(s, hold_ends)
    elseif s.large then
      s.hold = large.find_hold(s, s.front)
    else
      local from = 59 + 21 * s.front
      local at = string.find(bytes, stream, from, true)
      while at and (at - from) % 21 > 0 do
        at = string.find(bytes, stream, at + 1, true)
      end
      s.hold = at and (at - 59) / 21
    end
    if s.hold then
      local _, ends
      _, ends, s.cost = slot(s, s.hold)
      if s.cost == 0 and ends * 1000 > s.now then
        s.ended = ends
      end
    end
  end
  return s
end

-- write_holds writes a log. Of a small one, it replaces so many slots from the slot i on by others, and removes those before the
-- front. If the log shrinks, its key lives for long enough.
function write_holds(s, shrinks, i, slots, others)
  if s.large then
    large.trim(s)
  end
  s.written = true -- the holds that have expired are reported
  local body
  if not s.large then
    if not i then
      i, slots, others = s.front, 0, ''
    end
    body = others
    if i > s.front then
      body = string.sub(s.bytes, s.skip + 21 * s.front + 1, s.skip + 21 * i) .. body
    end
    if i + slots < s.count then
      body = body .. string.sub(s.bytes, s.skip + 21 * (i + slots) + 1)
    end
    s.passed, s.count, s.front, s.skip, s.bytes = s.passed - s.front, #body / 21, 0, 0, body
  end
  if s.active <= 0 or s.count == s.front then
    call('UNLINK', s.key)
    s.bytes, s.large, s.front, s.passed, s.count, s.active, s.used, s.reserved = '', false, 0, 0, 0, 0, 0, 0
    return
  end
  if body then
    s.last, s.last_cost = read('>I6I7', body, #body - 12)
    s.next = s.passed < s.count and read('>I6', body, 21 * s.passed + 9) or 0
  end
  local length, keep = 0, 0
  if s.terms then
    length = s.length > 0 and s.length or s.terms.length
    keep = math.ceil((gone(s, s.last, s.last_cost) - s.last * 1000) / 1000000)
  end
  local header = pack('>BI7BI7I4I4I2I2I2I2I7I6I6I7', 165, s.now, 0, s.used, length, keep, s.front, s.passed, s.count, s.active, s.reserved, s.next, s.last, s.last_cost)
  local life = s.last + 1000 * keep - math.floor(clock / 1000)
  life = string.format('%d', (life > 0 and life or 0) + 1000)
  if not body then
    call('SETRANGE', s.key, '0', header)
    if not shrinks then
      call('PEXPIRE', s.key, life)
    end
  elseif shrinks then
    call('SET', s.key, header .. body, 'KEEPTTL')
  else
    call('SET', s.key, header .. body, 'PX', life)
    s.large, s.slots = s.count > 32, s.count
  end
  s.stored = s.front
end

-- cut_hold removes the hold of the stream, or replaces it by a smaller one.
function cut_hold(s, left)
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
      large.set_slot(s, i, hold or pack('>I8I6I7', 0, ends, 0))
    end
    i = nil
  elseif not hold and i < s.passed then
    s.passed = s.passed - 1
  end
  write_holds(s, true, i, 1, hold or '')
  s.cost = left
end

-- known reads what is known of a stream:
--   key    the name of its value
--   found  whether there is one; a value that is something else says nothing
--   ended  until when it is denied because it has ended, in milliseconds, or 0
--   till   until when its last hold may count, or it is denied
--   logs   where it may hold something: name; ends, the end of the hold; pair, the two checks of a budget
-- The checks of one call share it.
function known(key)
  local k = last_known
  while k and k.key ~= key do
    k = k.before
  end
  if k then
    return k
  end
  local bytes = redis.pcall('GETRANGE', key, '0', '1048575')
  if type(bytes) == 'table' and string.find(bytes.err, 'WRONGTYPE', 1, true) then
    call('UNLINK', key) -- SET would free what is there, however much it is, before it returns
  end
  k = {key = key, found = false, ended = 0, till = 0, logs = {}, before = last_known}
  last_known = k
  if type(bytes) == 'table' or #bytes < 8 then
    return k
  end
  local kind, till = read('>BI7', bytes)
  local latest = latest_clock / 1000 + 34560000001
  if kind ~= 166 and kind ~= 167 or till > latest then
    return k
  end
  local logs, at = {}, 9
  while at <= #bytes do
    local length, more, hold_ends, pair = #bytes, 0, 0
    if #bytes - at >= 9 then
      hold_ends, length = read('>I6I4', bytes, at)
    end
    if length >= 2 ^ 30 then
      length, more = length - 2 ^ 30, 76
    end
    if at + 9 + length + more > #bytes or #logs == 192 then
      return k -- a value that is planted must not keep the server busy
    end
    local name = string.sub(bytes, at + 10, at + 9 + length)
    at = at + 10 + length
    if more > 0 then
      pair = string.sub(bytes, at, at + 75)
      local unit, window, step, limit, rate = read('>I2I6I6I7xxxxxxxI4', bytes, at + 40)
      if unit == 0 or unit > 5 and unit ~= 1000 or window < 10000 or step == 0 and (unit == 1 or unit == 1000)
        or unit == 2 and (rate == 0 or limit * window / rate > 2 * 34560000000000) or unit == 4 and step * 1000 > latest then
        return k -- no check
      end
      at = at + 76
    end
    logs[#logs + 1] = {name = name, ends = hold_ends, pair = pair}
  end
  k.found = true
  if till * 1000 > clock then
    k.till, k.ended = till, kind == 167 and till or 0
  elseif kind == 167 then
    return k
  end
  k.logs = logs
  return k
end

