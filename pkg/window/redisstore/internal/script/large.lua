-- large.lua has what large logs of holds need, and logs in which holds have expired. No other call pays for it. It is a part of
-- view_holds of holds.lua.

large = {}

-- find_hold returns the slot of a stream's hold, from the slot front on, or nil.
function large.find_hold(s, front)
  local bytes, from = s.bytes, s.skip + 21 * front + 1
  if s.large then
    bytes, from = call('GETRANGE', s.key, string.format('%d', 58 + 21 * front), string.format('%d', 57 + 21 * s.count)), 1
  end
  local at = string.find(bytes, s.stream, from, true)
  while at and (at - from) % 21 ~= 0 do
    at = string.find(bytes, s.stream, at + 1, true)
  end
  return at and front + (at - from) / 21
end

-- find_by_end returns the slot of a stream's hold that ends at ends, or nil.
function large.find_by_end(s, ends)
  local low, high, near = s.front, s.count, false
  while low < high do
    local middle, _, other = math.floor((low + high) / 2)
    if high - low > 64 then
      local at = 66 + 21 * middle
      other = read('>I6', call('GETRANGE', s.key, string.format('%d', at), string.format('%d', at + 5)))
    else
      if not near then
        near, s.from, s.skip = true, low, 0
        s.bytes = call('GETRANGE', s.key, string.format('%d', 58 + 21 * low), string.format('%d', 1401 + 21 * low))
      end
      _, other = slot(s, middle)
    end
    if other < ends then
      low = middle + 1
    else
      high = middle
    end
  end
  for i = low, s.count - 1 do
    local is, other = slot(s, i)
    if other > ends then
      return nil
    elseif is and string.sub(s.bytes, s.skip + 21 * (i - s.from) + 1, s.skip + 21 * (i - s.from) + 8) == s.stream then
      return i
    end
  end
end

-- compact makes a log small, whatever its size: bytes then have all of its holds, and no holes.
function large.compact(s)
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
      parts[#parts + 1] = string.sub(bytes, begin, at - 1)
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
  parts[#parts + 1] = string.sub(bytes, begin)
  s.bytes, s.from, s.skip, s.large = table.concat(parts), 0, 0, false
  s.front, s.passed, s.count, s.active, s.hold = 0, passed or active, active, active, hold
end

-- set writes a slot of a large log in place.
function large.set_slot(s, i, hold)
  s.slots = (call('SETRANGE', s.key, string.format('%d', 58 + 21 * i), hold) - 58) / 21
  if i >= s.from and s.skip + 21 * (i - s.from) < #s.bytes then
    s.bytes, s.skip = '', 0
  end
end

-- bound makes the numbers possible, if the header contradicts the slots.
local function bound(s)
  if s.front == s.count then
    s.reserved, s.used = 0, 0
  end
  s.used, s.active = math.max(s.used, s.reserved), math.min(math.max(s.active, 0), s.count - s.front)
end

-- expire passes the holds that have expired, and drops those that count no more.
function large.expire(s)
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
end

-- pay drops the holds of a bucket that have expired, because the log is charged for them.
function large.pay(s)
  while s.front < s.passed do
    if slot(s, s.front) then
      s.active = s.active - 1
    end
    s.front = s.front + 1
  end
  s.used = s.reserved
  bound(s)
end

-- trim drops the holes at both ends of a large log, and makes it small if it has few holds.
function large.trim(s)
  local passed, _ = s.passed
  while s.trims_last and s.count > s.front and not slot(s, s.count - 1, true) do
    s.count = s.count - 1
  end
  while (s.front > s.stored or s.trims_first) and s.front < s.count and not slot(s, s.front) do
    s.front = s.front + 1
  end
  s.passed = math.min(math.max(s.passed, s.front), s.count)
  if s.count <= 32 or s.slots > 2 * s.active + 32 then
    large.compact(s)
  elseif s.passed < s.count and s.passed ~= passed then
    _, s.next = slot(s, s.passed)
  end
  if s.large and s.trims_last then
    _, s.last, s.last_cost = slot(s, s.count - 1, true)
  end
  if s.passed == s.count then
    s.next = 0
  end
  s.trims_first, s.trims_last = false, false
end
