-- ends.lua ends streams in the logs of holds.lua. It follows adds.lua.

-- finish ends a stream in a log, and returns whether it had a hold. If it did not, the log
-- denies the stream for so many microseconds, unless that is 0. They count from the time of the
-- log, which is ahead if the clock was set back.
function finish(s, deny)
  local released = s.cost > 0
  if released then
    cut_hold(s, 0)
  elseif deny > 0 and s.ended == 0 and s.active < 20000 then
    put_hold(s, math.ceil((s.now + deny) / 1000), 0)
  elseif s.front > s.stored and (large.find_hold(s, s.stored) or s.front) < s.front then
    write_holds(s) -- it must not come back with the clock
  end
  return released
end

-- drop ends the stream in a log in flight, and returns what the reply of streams.lua counts for it.
function drop(key, stream, deny, ends)
  local bytes = redis.pcall('GETRANGE', key, '0', '729')
  if type(bytes) ~= 'string' then
    return 0
  end
  local s, contradicts = view_holds(key, bytes, stream, nil, ends)
  if contradicts then
    call('UNLINK', key)
    return 2
  elseif not s then
    return 0
  end
  return finish(s, deny) and 1 or 0
end
