-- rest.lua answers for a value that look.lua has read: the hits that remain, the waits until
-- one more remains and until nothing is used, and, without room, until the cost has room. It
-- is a part of the loop of take.lua. Waits count from the server's clock.
local behind = now - clock
local waits_cost = not room and cost > 1 and cost <= limit
if used == 0 then
  -- Nothing to wait for.
elseif unit == 2 then
  local has = major > 0 and major or 0
  remaining = major
  reset = behind + (full_after or fills(used, minor, window, most))
  if limit > 0 then
    unit_after = behind + fills(has + 1 - major, minor, window, most)
  end
  if waits_cost then
    retry = behind + fills(cost - major, minor, window, most)
  end
elseif unit == 5 then
  local left = window - now % window
  reset = behind + falls(0, major, minor, left, window)
  if limit > 0 then
    unit_after = behind + falls((used < limit and used or limit) - 1, major, minor, left, window)
  end
  if waits_cost and used > limit - cost then
    retry = behind + falls(limit - cost, major, minor, left, window)
  end
else
  reset = major - clock
  if limit > 0 then
    unit_after = reset
  end
  if waits_cost then
    retry = reset
  end
end
