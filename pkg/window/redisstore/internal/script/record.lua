-- record.lua records a charge or a refund in a value that look.lua has read, and writes it.
-- It is a part of the loop of take.lua.
local value, until_idle -- nil: nothing changes
if unit == 2 then
  if refund then
    major = math.min(major + cost, limit)
    if major == limit then
      minor = 0
    end
  else
    major = major - charge
  end
  if refund or charge > 0 then
    used = limit - major
    full_after = fills(used, minor, window, most)
    local life = (full_after + -full_after % 1000000) / 1000000
    if major < 2 ^ 32 and major > -2 ^ 32 then
      value = pack('>BI7BI5I6I4', 161, now, mark, major + 2 ^ 32, minor, life)
    else
      value = pack('>BI7BBI7I6I4', 161, now, mark, major < 0 and 1 or 0, math.abs(major), minor, life)
    end
    -- Each charge makes the bucket idle later. A quarter of the window more saves a new expiry
    -- with each of them. It follows from the window and the value, because look.lua must find
    -- the same.
    local part = math.ceil(window / 4000000) * 1000000
    until_idle = now + life * 1000000
    until_idle = until_idle - until_idle % part + part
  end
elseif unit == 5 then
  local left = window - now % window
  if refund then
    -- The current window first, then the previous one; with restores, in the one that ends
    -- at step + 2^48 * ahead, and in no other.
    local only = restores and step + ahead * 2 ^ 48
    local current, previous = 0, 0
    if not only or only == now + left then
      current = math.min(cost, major)
    end
    if not only or only == now + left - window then
      previous = math.min(cost - current, minor)
    end
    major, minor = major - current, minor - previous
    charge = current + previous
    used = major + weigh(minor, left, window)
  else
    major, used = major + charge, used + charge
  end
  if charge > 0 then
    value = pack((major >= 2 ^ 32 or minor >= 2 ^ 32) and '>BI7BI7I7' or '>BI7BI4I4', 164, now, mark, major, minor)
    until_idle = major > 0 and now + left + window or used > 0 and now + left or now
  end
else
  if not refund then
    used = used + charge
  elseif not restores or step + ahead * 2 ^ 48 == major then
    used, charge = math.max(used - cost, 0), cost
  end
  if charge > 0 then
    if minor > major then
      major = minor -- an open period only becomes longer
    end
    value, until_idle = pack(used >= 2 ^ 32 and '>BI7BI7I7' or '>BI7BI4I7', 159 + unit, now, mark, used, major), major
  end
end

-- The key lives until the value counts nothing, and a second more: a clock that is set back a
-- little must not open a period again.
if value and until_idle <= idle then
  call('SET', key, value, 'KEEPTTL')
elseif value then
  call('SET', key, value, 'PX', math.max(math.ceil((until_idle - clock) / 1000), 0) + 1000)
  idle = until_idle
end
