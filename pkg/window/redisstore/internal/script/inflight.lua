-- inflight.lua has the checks of the policy in flight. It is a part of take.lua.
-- include falls.lua

in_flight = {}

function in_flight.look(bytes, _, window, limit, step, most, ahead, _, key, cost)
  local s, pair
  -- include reserves.lua
  if not s then
    return nil
  end
  if s.ended > 0 then
    s.room = false
  elseif s.cost > 0 then
    s.room = true
  end
  return s.used, 0, s
end

-- charge lets the stream hold a cost, unless it holds one already or has ended.
function in_flight.charge(key, s, cost)
  cost = math.min(cost, 4294967295)
  if cost <= 0 or s.ended > 0 or s.cost > 0 or s.active >= 20000 then
    return
  end
  put_hold(s, s.ends, cost)
  s.made = true
  if s.known then
    remember(s.known, key, s.ends, nil, nil, s.ends)
  end
end

-- refund makes the stream's own hold smaller.
function in_flight.refund(key, s, cost)
  if s.cost > 0 then
    cut_hold(s, math.max(s.cost - cost, 0))
  end
end

function in_flight.rest(s, limit)
  if s.used == 0 then
    return limit, 0, 0
  end
  return limit - s.used, limit > 0 and hold_falls(s, math.min(s.used, limit) - 1) or 0, math.max(math.min(last_paid(s), s.last) * 1000 - clock, 1)
end

function in_flight.wait(s, limit, cost)
  local level = limit - math.max(cost, 1)
  local wait = s.used > level and hold_falls(s, level) or 0
  return math.max(wait, s.ended * 1000 - clock, 0)
end
