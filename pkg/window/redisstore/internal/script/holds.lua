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
--   brief  the last hold has a cost, and the first has not expired and does not end later
--   last   when the last hold ends
function holds.head(key, bytes, stream)
  local s = {key = key, bytes = bytes, stream = stream, now = clock, total = 0, expired = 0, used = 0, cost = 0, ended = 0, last = 0}
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
  local kind, log_clock, mark, sum = read('>BI7BI7', bytes)
  local pays = 0
  if s.total > 0 then
    s.last, pays = read('>I6I7', tail)
  end
  if kind ~= 165 or log_clock > latest_clock or s.last > latest then
    return nil
  end
  s.now, s.used = math.max(log_clock, clock), sum
  if s.part then
    local ends = read('>I6', bytes, 33)
    s.brief = pays > 0 and ends * 1000 > s.now and ends <= s.last
  end
  return s
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
    if ends * 1000 > s.now then
      s.used = sum
      break
    end
    s.expired, sum = s.expired + 1, sum - cost
  end
  s.stream_hold = find_hold(bytes, s.stream, s.expired + 1)
  if s.stream_hold then
    local ends
    ends, s.cost = read('>I6I7', bytes, 21 * s.stream_hold + 12)
    if s.cost == 0 then
      s.ended = ends
    end
  end
  return true
end

-- life returns the milliseconds for which a key lives whose last hold counts until then.
local function life(ends)
  return math.max(ends - math.floor(clock / 1000), 0) + 1000
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
  s.bytes = pack('>BI7BI7I4I4', 165, s.now, 0, s.used, 0, 0) .. before .. hold .. after
  s.last = read('>I6', s.bytes, size + 12)
  call('SET', key, s.bytes, 'PX', life(s.last))
end

-- put adds a hold of the stream. If not all was read, the hold ends last.
local function put(key, s, ends, cost)
  local hold = pack('>c8I6I7', s.stream, ends, cost)
  s.used, s.cost = s.used + cost, cost
  if s.part then
    s.total, s.last = s.total + 1, ends
    call('SETRANGE', key, '0', pack('>BI7BI7I4I4', 165, s.now, 0, s.used, 0, 0))
    call('APPEND', key, hold)
    call('PEXPIRE', key, life(ends))
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

-- known reads the value of a stream. It returns its kind, until when it matters in
-- milliseconds, and the names of its logs; nothing of a value that is something else.
function holds.known(key)
  local bytes = redis.pcall('GETRANGE', key, '0', '1048575')
  if type(bytes) == 'table' and string.find(bytes.err, 'WRONGTYPE', 1, true) then
    call('UNLINK', key) -- SET would free what is there, however much it is, before it returns
  end
  if type(bytes) == 'table' or #bytes < 8 then
    return 0, 0, {}
  end
  local kind, till = read('>BI7', bytes)
  local names, at = {}, 9
  while at <= #bytes do
    local length = #bytes - at >= 3 and read('>I4', bytes, at) or #bytes
    if at + 3 + length > #bytes or #names == most_logs then
      return 0, 0, {} -- a value that is planted must not keep the server busy
    end
    names[#names + 1] = sub(bytes, at + 4, at + 3 + length)
    at = at + 4 + length
  end
  if kind ~= 166 and kind ~= 167 or till > latest then
    return 0, 0, {}
  end
  return kind, till, names
end

-- stream returns what is known of a stream: the name of its value, until when it is denied in
-- milliseconds or 0, until when its last hold may count, the names of its logs, and whether the
-- value was found. The checks of one call share it.
local streams = {}
function holds.stream(key)
  local known = streams[key]
  if not known then
    local kind, till, names = holds.known(key)
    known = {key = key, found = kind > 0, ended = 0, till = 0, names = names}
    if till * 1000 > clock then
      known.till = till
      known.ended = kind == 167 and till or 0
    elseif kind == 167 then
      known.names = {}
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

-- remember writes that a stream may hold something in a log until then, in milliseconds. With
-- the kind 167 and no name, it writes that the stream has ended and is denied until then.
function holds.remember(known, name, till, kind)
  if name and not has(known, name) then
    known.names[#known.names + 1] = name
  elseif name and till <= known.till then
    return
  end
  known.till = kind and till or math.max(known.till, till)
  local parts = {pack('>BI7', kind or 166, known.till)}
  for i = 1, #known.names do
    parts[i + 1] = pack('>I4', #known.names[i]) .. known.names[i]
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
  if s.ended > 0 then
    s.room = false
  elseif s.cost > 0 then
    s.room = true
  end
  return s.used, 0, s
end

-- charge lets the stream hold a cost, unless it holds one already or has ended.
function holds.charge(key, s, cost)
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
local function falls(s, level)
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
  return math.max(math.min(ends, s.last) * 1000 - clock, 1)
end

function holds.rest(s, limit)
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
  return limit - s.used, limit > 0 and falls(s, math.min(s.used, limit) - 1) or 0, last * 1000 - clock
end

function holds.wait(s, limit, cost)
  local level = limit - math.max(cost, 1)
  local wait = s.used > level and falls(s, level) or 0
  return math.max(wait, s.ended * 1000 - clock, 0)
end
