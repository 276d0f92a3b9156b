-- ends.lua ends streams in the logs of holds.lua, behind which it is included.

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

-- finish ends a stream in a log, and returns whether it had a hold. If it did not, the log
-- denies the stream for so many microseconds, unless that is 0. They count from the time of the
-- log, which is ahead if the clock was set back.
function holds.finish(s, deny)
  local released = s.cost > 0
  if released then
    cut(s, 0)
  elseif deny > 0 and s.ended == 0 and s.active < most_holds then
    put(s, math.ceil((s.now + deny) / 1000), 0)
  elseif s.front > s.stored and (find_hold(s, s.stored) or s.front) < s.front then
    write(s) -- it must not come back with the clock
  end
  return released
end

-- read reads the holds of a log as a stream sees them, whose hold ends at ends. A value that is something else is removed, and corrupt.
function holds.read(key, stream, terms, ends)
  local bytes = redis.pcall('GETRANGE', key, '0', '729')
  local s = type(bytes) == 'string' and holds.head(key, bytes, stream)
  if s then
    s.terms = terms
    if holds.pass(s) then
      holds.seek(s, ends)
      return s, false
    end
  end
  call('UNLINK', key)
  s = holds.head(key, '', stream)
  s.terms = terms
  return s, true
end

-- drop ends the stream in a log in flight, and returns what the reply of streams.lua counts for it.
function holds.drop(key, stream, deny, ends)
  local bytes = redis.pcall('GETRANGE', key, '0', '729')
  local s = type(bytes) == 'string' and holds.head(key, bytes, stream)
  if not s then
    return 0
  elseif not holds.pass(s) then
    call('UNLINK', key)
    return 2
  end
  holds.seek(s, ends)
  return holds.finish(s, deny) and 1 or 0
end

-- settle removes the hold of the stream, and those of a bucket that have expired.
function holds.settle(s)
  if s.terms.bucket then
    pay(s)
  end
  if s.hold >= s.front then
    cut(s, 0)
  else
    write(s)
  end
  s.cost, s.hold = 0, nil
end
