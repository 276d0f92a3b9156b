-- holds.lua counts what streams hold now, for the policy in flight. take.lua runs it when it
-- reads the first such check, and streams.lua always. It translates inflight.go of package
-- packed, whose comments give the reasons. The same test vectors hold for both, byte by byte.
--
-- The format of a log is '>BI7BI7I4I4' (kind 165, clock, mark, sum of all costs, and 0 twice) and '>c8I6I7' for
-- each hold (stream, end in milliseconds, cost), in the order of their ends. A cost of 0 says
-- that the stream has ended. A log without holds is removed.
--
-- What is known of a stream is a separate value, if ARGV[3] of take.lua has the beginning of
-- its name: '>BI7' (kind 166, or 167 after the end of the stream; until when, in milliseconds)
-- and '>I4c0' for the name of each log in which the stream may hold something.
--
-- What is reserved of a budget is a value of the same format next to its log, on its slot: the name of the log and
-- ':r'. The last two numbers of its header are the shortest time of a hold in milliseconds, and for how many
-- seconds the last hold counts after its end. A check of unit 8 is about it, directly before the check of the log. It has mode 2. Its
-- fields mean: window, how long a hold lasts; step and most, the stream, as of a check in flight; limit, the cost of a byte in
-- millionths, 0 if it has none; cost, that of the other check; ahead, as in flight. Its answer says under remaining 1 if there
-- are too many holds, under unit what is reserved, and under retry 1 if the stream holds its cost since now. The value of a
-- stream has 2^30 more as the length of
-- such a name, and behind the name these two checks, without which no end could charge the log. It translates
-- budget.go of package packed.
--
-- It uses clock, latest_clock, call, pack and read of the script that includes it. The i-th hold of a log,
-- counted from 1, begins at byte 21 * i + 4. The first 696 bytes are read first: 32 holds.

holds = {}

local find, sub = string.find, string.sub
local most_holds, most_logs = 20000, 192
local latest = latest_clock / 1000 + 400 * 86400 * 1000 + 1 -- the latest possible end

-- find_hold returns the number of a stream's hold, from the given hold on, or nil.
local function find_hold(bytes, stream, from)
  local at = find(bytes, stream, 21 * from + 4, true)
  while at and at % 21 ~= 4 do
    at = find(bytes, stream, at + 1, true)
  end
  return at and (at - 4) / 21
end

-- head reads the beginning and the end of a log as a stream sees it, which holds nothing there.
-- bytes are the first 696 bytes or all. It returns nil if the value is not a log of holds. Of
-- the result:
--   part   not all was read
--   brief  the first and the last hold have a cost, and the first has not expired and does not end later
--   last   when the last hold ends
function holds.head(key, bytes, stream)
  local s = {key = key, bytes = bytes, stream = stream, now = clock, total = 0, expired = 0, passed = 0, used = 0, reserved = 0, length = 0, cost = 0, ended = 0, last = 0}
  if bytes == '' then
    return s
  end
  local size, tail = #bytes, sub(bytes, -13)
  if size == 696 then
    size = call('STRLEN', key)
    tail = call('GETRANGE', key, string.format('%d', size - 13), '-1')
  end
  s.total, s.part = (size - 24) / 21, size > #bytes
  if size < 24 or (size - 24) % 21 ~= 0 or s.total > most_holds then
    return nil
  end
  local kind, log_clock, mark, sum, length = read('>BI7BI7I4', bytes)
  local pays = 0
  if s.total > 0 then
    s.last, pays = read('>I6I7', tail)
  end
  if kind ~= 165 or log_clock > latest_clock or s.last > latest then
    return nil
  end
  s.now, s.used, s.reserved, s.length = math.max(log_clock, clock), sum, sum, length
  if s.part then
    local ends, cost = read('>I6I7', bytes, 33)
    s.brief = pays > 0 and cost > 0 and ends * 1000 > s.now and ends <= s.last
  end
  return s
end

-- terms returns what decides when a log forgets what was spent at an instant, by the two checks of a budget.
function holds.terms(pair)
  local hold, factor = read('>I6xxxxxxI7', pair, 5)
  local unit, window, step, limit, most, ahead = read('>I2I6I6I7xxxxxxxI4I4', pair, 41)
  local t = {length = hold / 1000, factor = factor, bucket = unit == 2, limit = limit}
  t.fill = t.bucket and 2 * (math.floor(math.min(limit * window / most, 34560000000000)) + 1)
  function t.forgets(at)
    if unit == 3 then
      return (math.floor(at / window) + 1) * window
    elseif unit == 4 then
      local start, ends = (step - most) * 1000000, step * 1000000
      return at < start and start or at < ends and ends or ends + ahead * 1000000
    elseif unit == 5 then
      return (math.floor(at / window) + 2) * window
    end
    return at + window
  end
  return t
end

-- current returns a check of a log whose period of a calendar may be over: with the period of now.
function holds.current(check)
  local unit = read('>I2', check, 3)
  if unit ~= 4 then
    return check
  end
  local ends, length, after = read('>I6xxxxxxxxxxxxxxI4I4', check, 11)
  if clock >= (ends + after) * 1000000 and after > 0 then
    local passed = math.floor((math.floor(clock / 1000000) - ends - after) / after)
    return sub(check, 1, 10) .. pack('>I6', ends + (passed + 2) * after) .. sub(check, 17, 30) .. pack('>I4I4', after, after)
  end
  return check
end

-- gone returns when a hold counts no more, in microseconds.
local function gone(s, ends, cost)
  if not s.terms or cost == 0 then
    return ends * 1000
  elseif s.terms.bucket then
    return ends * 1000 + s.terms.fill -- a bucket without writes since is full then
  end
  local length = s.length > 0 and s.length or s.terms.length
  return math.max(ends * 1000, s.terms.forgets(math.max(ends - length, 0) * 1000))
end

-- whole reads what head has not read, and the hold of the stream. It returns false if the
-- header contradicts the holds, or they are not in the order of their ends.
function holds.whole(s)
  if s.part then
    s.bytes, s.part = call('GETRANGE', s.key, '0', '420023'), false
  end
  local bytes, sum, before = s.bytes, 0, 0
  for at = 33, #bytes, 21 do
    local ends, cost = read('>I6I7', bytes, at)
    if ends < before then
      return false
    end
    sum, before = sum + cost, ends
  end
  if sum ~= s.used then
    return false
  end
  s.used = 0
  while s.expired < s.total do
    local ends, cost = read('>I6I7', bytes, 21 * s.expired + 33)
    if ends * 1000 > s.now or s.terms and gone(s, ends, cost) > s.now then
      s.used = sum
      break
    end
    s.expired, sum = s.expired + 1, sum - cost
  end
  s.passed, s.reserved = s.expired, s.used
  while s.terms and s.passed < s.total do
    local ends, cost = read('>I6I7', bytes, 21 * s.passed + 33)
    if ends * 1000 > s.now then
      break
    end
    s.passed, s.reserved = s.passed + 1, s.reserved - cost
  end
  s.stream_hold = find_hold(bytes, s.stream, s.expired + 1)
  if s.stream_hold then
    local ends
    ends, s.cost = read('>I6I7', bytes, 21 * s.stream_hold + 12)
    if s.cost == 0 and ends * 1000 > s.now then
      s.ended = ends
    end
  end
  return true
end

-- header returns the header of a log whose last hold is this one, and the milliseconds for which its key lives.
local function header(s, ends, cost)
  local length, keep = 0, 0
  if s.terms then
    length = s.length > 0 and s.length or s.terms.length
    keep = math.ceil((gone(s, ends, cost) - ends * 1000) / 1000000)
  end
  return pack('>BI7BI7I4I4', 165, s.now, 0, s.used, length, keep), math.max(ends + 1000 * keep - math.floor(clock / 1000), 0) + 1000
end

-- write writes the given holds, as three strings.
local function write(key, s, before, hold, after)
  local size = #before + #hold + #after
  s.total, s.expired = size / 21, 0
  if size == 0 then
    s.bytes = ''
    call('UNLINK', key)
    return
  end
  local slots, last_cost = before .. hold .. after
  s.last, last_cost = read('>I6I7', slots, size - 12)
  local head, life = header(s, s.last, last_cost)
  s.bytes = head .. slots
  call('SET', key, s.bytes, 'PX', life)
end

-- put adds a hold of the stream. If not all was read, the hold ends last.
local function put(key, s, ends, cost)
  local hold = pack('>c8I6I7', s.stream, ends, cost)
  s.used, s.cost = s.used + cost, cost
  if s.part then
    s.total, s.last = s.total + 1, ends
    local head, life = header(s, ends, cost)
    call('SETRANGE', key, '0', head)
    call('APPEND', key, hold)
    call('PEXPIRE', key, life)
    s.bytes = head .. sub(s.bytes, 25)
    return
  end
  local position = s.total
  while position > s.expired and read('>I6', s.bytes, 21 * position + 12) > ends do
    position = position - 1
  end
  write(key, s, sub(s.bytes, 21 * s.expired + 25, 21 * position + 24), hold, sub(s.bytes, 21 * position + 25))
end

-- cut removes the hold of the stream, or replaces it by a smaller one.
local function cut(key, s, left)
  s.used = s.used - s.cost + left
  local smaller = left > 0 and sub(s.bytes, 21 * s.stream_hold + 4, 21 * s.stream_hold + 17) .. pack('>I7', left) or ''
  write(key, s, sub(s.bytes, 21 * s.expired + 25, 21 * s.stream_hold + 3), smaller, sub(s.bytes, 21 * s.stream_hold + 25))
  s.cost = left
end

-- finish ends a stream in a log, and returns whether it had a hold. If it did not, the log
-- denies the stream for so many microseconds, unless that is 0. They count from the time of the
-- log, which is ahead if the clock was set back.
function holds.finish(key, s, deny)
  local released = s.cost > 0
  if released then
    cut(key, s, 0)
  elseif deny > 0 and s.ended == 0 and s.total - s.expired < most_holds then
    put(key, s, math.ceil((s.now + deny) / 1000), 0)
  elseif (find_hold(s.bytes, s.stream, 1) or math.huge) <= s.expired then
    write(key, s, '', '', sub(s.bytes, 21 * s.expired + 25)) -- it must not come back with the clock
  end
  return released
end

-- read reads the holds of a budget as a stream sees them. A value that is something else is removed, and corrupt.
function holds.read(key, stream, terms)
  local bytes = redis.pcall('GETRANGE', key, '0', '695')
  local s = type(bytes) == 'string' and holds.head(key, bytes, stream)
  if s then
    s.terms = terms
    if holds.whole(s) then
      return s, false
    end
  end
  call('UNLINK', key)
  s = holds.head(key, '', stream)
  s.terms = terms
  return s, true
end

-- drop ends the stream in a log in flight, and returns what the reply of streams.lua counts for it.
function holds.drop(key, stream, deny)
  local bytes = redis.pcall('GETRANGE', key, '0', '695')
  local s = type(bytes) == 'string' and holds.head(key, bytes, stream)
  if not s then
    return 0
  elseif not holds.whole(s) then
    call('UNLINK', key)
    return 2
  end
  return holds.finish(key, s, deny) and 1 or 0
end

-- settle removes the hold of the stream, and those of a bucket that have expired, because the log is charged for them.
function holds.settle(s, late)
  local from, number = s.expired, s.stream_hold
  s.used, s.total = s.used - s.cost, s.total - 1
  if late then
    s.passed = s.passed - 1
  else
    s.reserved = s.reserved - s.cost
  end
  if s.terms.bucket then
    from, s.used = s.passed + (late and 1 or 0), s.reserved
  end
  local before = from < number and sub(s.bytes, 21 * from + 25, 21 * number + 3) or ''
  local after = sub(s.bytes, 21 * math.max(number, from) + 25)
  write(s.key, s, before, '', after)
  s.cost, s.stream_hold, s.passed = 0, nil, 0
end

-- reserve lets the stream hold a cost that has room. A bucket was charged for the holds that have expired.
function holds.reserve(s, cost)
  s.length = math.min(s.length > 0 and s.length or s.terms.length, s.terms.length)
  if s.terms.bucket then
    s.expired, s.used = s.passed, s.reserved
  end
  local number = s.stream_hold
  if number and number > s.expired then -- the stream had ended, and is not denied any more
    s.bytes, s.total = sub(s.bytes, 1, 21 * number + 3) .. sub(s.bytes, 21 * number + 25), s.total - 1
  end
  put(s.key, s, s.ends, cost)
  s.reserved, s.made, s.passed, s.stream_hold = s.reserved + cost, true, 0, nil
  if s.known then
    holds.remember(s.known, s.key, math.ceil(gone(s, s.ends, cost) / 1000), nil, s.pair)
  end
end

-- known reads the value of a stream. It returns its kind, until when it matters in
-- milliseconds, and the names of its logs; nothing of a value that is something else. The last result has the two
-- checks of a budget, by the number of the name.
function holds.known(key)
  local bytes = redis.pcall('GETRANGE', key, '0', '1048575')
  if type(bytes) == 'table' and string.find(bytes.err, 'WRONGTYPE', 1, true) then
    call('UNLINK', key) -- SET would free what is there, however much it is, before it returns
  end
  if type(bytes) == 'table' or #bytes < 8 then
    return 0, 0, {}, {}
  end
  local kind, till = read('>BI7', bytes)
  local names, pairs, at = {}, {}, 9
  while at <= #bytes do
    local length, more = #bytes - at >= 3 and read('>I4', bytes, at) or #bytes, 0
    if length >= 2 ^ 30 then
      length, more = length - 2 ^ 30, 76
    end
    if at + 3 + length + more > #bytes or #names == most_logs then
      return 0, 0, {}, {} -- a value that is planted must not keep the server busy
    end
    names[#names + 1] = sub(bytes, at + 4, at + 3 + length)
    at = at + 4 + length
    if more > 0 then
      pairs[#names] = sub(bytes, at, at + 75)
      local unit, window, step, rate = read('>I2I6I6xxxxxxxxxxxxxxI4', bytes, at + 40)
      if unit == 0 or unit > 5 and unit ~= 1000 or window < 10000 or step == 0 and (unit == 1 or unit == 1000) or rate == 0 and unit == 2 then
        return 0, 0, {}, {} -- no check
      end
      at = at + 76
    end
  end
  if kind ~= 166 and kind ~= 167 or till > latest then
    return 0, 0, {}, {}
  end
  return kind, till, names, pairs
end

-- stream returns what is known of a stream: the name of its value, until when it is denied in
-- milliseconds or 0, until when its last hold may count, the names of its logs, and whether the
-- value was found. The checks of one call share it.
local streams = {}
function holds.stream(key)
  local known = streams[key]
  if not known then
    local kind, till, names, pairs = holds.known(key)
    known = {key = key, found = kind > 0, ended = 0, till = 0, names = names, pairs = pairs}
    if till * 1000 > clock then
      known.till = till
      known.ended = kind == 167 and till or 0
    elseif kind == 167 then
      known.names, known.pairs = {}, {}
    end
    streams[key] = known
  end
  return known
end

-- has returns whether a stream may hold something in a log.
local function has(known, name)
  for i = 1, #known.names do
    if known.names[i] == name then
      return true
    end
  end
  return false
end

-- full returns whether a stream holds something in too many logs to do so in another one.
function holds.full(known, name)
  return known.till > 0 and #known.names >= most_logs and not has(known, name)
end

-- remember writes that a stream may hold something in a log until then, in milliseconds, with the two checks of a budget. With
-- the kind 167 and no name, it writes that the stream has ended and is denied until then.
function holds.remember(known, name, till, kind, pair)
  if name and not has(known, name) then
    known.names[#known.names + 1] = name
    known.pairs[#known.names] = pair
  elseif name and till <= known.till then
    return
  end
  known.till = kind and till or math.max(known.till, till)
  local parts = {pack('>BI7', kind or 166, known.till)}
  for i = 1, #known.names do
    local checks = known.pairs[i]
    parts[i + 1] = pack('>I4', #known.names[i] + (checks and 2 ^ 30 or 0)) .. known.names[i] .. (checks or '')
  end
  call('SET', known.key, table.concat(parts), 'PX', math.max(known.till - math.floor(clock / 1000), 0) + 1000)
end

-- look: see take.lua. The stream is the six bytes of step and the last two of most. ahead is
-- for how many milliseconds more the stream is denied, if the caller knows that it has ended.
-- 2^32 - 1 says instead that the stream was unknown when the caller noted the check.
--
-- A stream that holds nothing in the log needs no look at the holds, if all of them count until
-- a new one would end at the latest. An end may come after the note of a check, so then the
-- header can only deny.
function holds.look(bytes, unit, window, limit, step, most, ahead, restores, key, cost)
  local s = holds.head(key, bytes, pack('>I6I2', step, most % 65536))
  if not s then
    return nil
  end
  if unit == 8 then
    s.pair = sub(args, 38 * i - 30, 38 * i + 45)
    s.terms = holds.terms(s.pair)
    limit = s.terms.limit
  end
  local new = ahead == 4294967295
  if ARGV[3] then
    local high = math.floor(step / 2 ^ 24)
    s.known = holds.stream(string.format('%s%06x%06x%04x}:s', ARGV[3], high, step % 2 ^ 24, most % 65536))
    new = not has(s.known, key)
  end
  s.ends = math.ceil((s.now + window) / 1000)
  local full = s.used >= limit or cost > limit - s.used
  if not (new and s.brief and s.last <= s.ends and (s.known or full)) and not holds.whole(s) then
    return nil
  end
  if ahead > 0 and ahead < 4294967295 then
    s.ended = math.max(s.ended, math.ceil(clock / 1000) + ahead)
  end
  if s.known then
    s.ended = math.max(s.ended, s.known.ended, holds.full(s.known, key) and s.known.till or 0)
  end
  s.free = s.total - s.expired < most_holds
  if unit == 8 then
    s.room = true -- the check of the log decides
  elseif s.ended > 0 then
    s.room = false
  elseif s.cost > 0 then
    s.room = true
  end
  return s.used, 0, s
end

-- charge lets the stream hold a cost, unless it holds one already or has ended.
function holds.charge(key, s, cost)
  if s.terms then
    return -- the check of the log reserves
  end
  cost = math.min(cost, 4294967295)
  if cost <= 0 or s.ended > 0 or s.cost > 0 or s.total - s.expired >= most_holds then
    return
  end
  put(key, s, s.ends, cost)
  s.made = true
  if s.known then
    holds.remember(s.known, key, s.ends)
  end
end

-- refund makes the stream's own hold smaller.
function holds.refund(key, s, cost)
  if s.cost > 0 then
    cut(key, s, math.max(s.cost - cost, 0))
  end
end

-- falls returns the microseconds until no more than a level is used, if holds only expire.
function holds.falls(s, level)
  local used, i = s.used, s.expired
  local ends, cost
  repeat
    i = i + 1
    if 21 * i + 24 > #s.bytes then
      s.bytes = call('GETRANGE', s.key, '0', string.format('%d', 42 * i + 23))
    end
    ends, cost = read('>I6I7', s.bytes, 21 * i + 12)
    used = used - cost
  until used <= level or i >= s.total
  -- A hold out of order may end after the last one, or have ended.
  return math.max(s.terms and gone(s, ends, cost) - clock or math.min(ends, s.last) * 1000 - clock, 1)
end

function holds.rest(s, limit)
  if s.terms then
    return (s.free or s.ended > 0) and 0 or 1, s.reserved, 0
  end
  if s.used == 0 then
    return limit, 0, 0
  end
  local last, at = s.last, s.total
  if not s.part then
    while at > 1 and read('>I7', s.bytes, 21 * at + 18) == 0 do
      at = at - 1
    end
    last = read('>I6', s.bytes, 21 * at + 12)
  end
  return limit - s.used, limit > 0 and holds.falls(s, math.min(s.used, limit) - 1) or 0, last * 1000 - clock
end

function holds.wait(s, limit, cost)
  local level = limit - math.max(cost, 1)
  local wait = s.used > level and holds.falls(s, level) or 0
  return math.max(wait, s.ended * 1000 - clock, 0)
end
