-- reserves.lua lets streams hold something in the logs of holds.lua, behind which take.lua includes it.

-- look: see take.lua. The stream is the six bytes of step and the last two of most. ahead is
-- for how many milliseconds more the stream is denied, if the caller knows that it has ended.
-- 2^32 - 1 says instead that the stream was unknown when the caller noted the check.
--
-- A stream that holds nothing in a large log is not searched for. An end may come after the note of a check, so then
-- that can only deny.
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
  local new, ends = ahead == 4294967295
  if ARGV[3] then
    local high = math.floor(step / 2 ^ 24)
    s.known = holds.stream(string.format('%s%06x%06x%04x}:s', ARGV[3], high, step % 2 ^ 24, most % 65536))
    local number = has(s.known, key)
    new, ends = not number, number and s.known.ends[number]
  end
  s.ends = math.ceil((s.now + window) / 1000)
  if not holds.pass(s) then
    return nil
  end
  local full = s.used >= limit or cost > limit - s.used
  if not (new and s.large and (s.known or full)) then
    holds.seek(s, ends)
  end
  if ahead > 0 and ahead < 4294967295 then
    s.ended = math.max(s.ended, math.ceil(clock / 1000) + ahead)
  end
  if s.known then
    s.ended = math.max(s.ended, s.known.ended, holds.full(s.known, key) and s.known.till or 0)
  end
  s.free = s.active < most_holds
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
  if cost <= 0 or s.ended > 0 or s.cost > 0 or s.active >= most_holds then
    return
  end
  put(s, s.ends, cost)
  s.made = true
  if s.known then
    holds.remember(s.known, key, s.ends, nil, nil, s.ends)
  end
end

-- refund makes the stream's own hold smaller.
function holds.refund(key, s, cost)
  if s.cost > 0 then
    cut(s, math.max(s.cost - cost, 0))
  end
end

-- falls returns the microseconds until no more than a level is used, if holds only expire.
function holds.falls(s, level)
  local used, i = s.used, s.front
  local is, ends, cost
  repeat
    is, ends, cost = slot(s, i)
    used, i = used - cost, i + 1
  until used <= level or i >= s.count
  -- A hold out of order may end after the last one, or have ended.
  return math.max(s.terms and gone(s, ends, cost) - clock or math.min(ends, s.last) * 1000 - clock, 1)
end

-- last_paid returns when the last hold with a cost ends, in milliseconds. There is a hold.
local function last_paid(s)
  local ends, cost, i, _ = s.last, s.last_cost, s.count
  while cost == 0 and i > s.front do
    i = i - 1
    _, ends, cost = slot(s, i, true)
  end
  return ends
end

-- over returns the microseconds until nothing is used, if holds only expire.
function holds.over(s)
  return math.max(gone(s, last_paid(s), 1) - clock, 1)
end

function holds.rest(s, limit)
  if s.terms then
    return ((s.free or s.ended > 0) and 0 or 1) + 2 * (s.written and s.expired or 0), s.reserved, s.written and s.expired_units or 0
  end
  if s.used == 0 then
    return limit, 0, 0
  end
  return limit - s.used, limit > 0 and holds.falls(s, math.min(s.used, limit) - 1) or 0, math.max(math.min(last_paid(s), s.last) * 1000 - clock, 1)
end

function holds.wait(s, limit, cost)
  local level = limit - math.max(cost, 1)
  local wait = s.used > level and holds.falls(s, level) or 0
  return math.max(wait, s.ended * 1000 - clock, 0)
end

-- reserve lets the stream hold a cost that has room. A bucket was charged for the holds that have expired.
function holds.reserve(s, cost)
  s.length = math.min(s.length > 0 and s.length or s.terms.length, s.terms.length)
  if s.terms.bucket then
    pay(s)
  end
  if s.hold and s.hold >= s.front then
    cut(s, 0) -- the stream had ended, and is not denied any more
  end
  put(s, s.ends, cost)
  s.made, s.hold = true, nil
  if s.known then
    holds.remember(s.known, s.key, math.ceil(gone(s, s.ends, cost) / 1000), nil, s.pair, s.ends)
  end
end
