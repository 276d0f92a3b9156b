-- falls.lua has the waits for holds. It follows holds.lua.

-- hold_falls returns the microseconds until no more than a level is used, if holds only expire.
function hold_falls(s, level)
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
function last_paid(s)
  local ends, cost, i, _ = s.last, s.last_cost, s.count
  while cost == 0 and i > s.front do
    i = i - 1
    _, ends, cost = slot(s, i, true)
  end
  return ends
end

-- over returns the microseconds until nothing is used, if holds only expire.
function over(s)
  return math.max(gone(s, last_paid(s), 1) - clock, 1)
end
