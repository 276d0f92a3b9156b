-- adds.lua adds holds to the logs of holds.lua, which it follows.

-- put_hold adds a hold of the stream.
function put_hold(s, ends, cost)
  local hold, i = pack('>c8I6I7', s.stream, ends, cost)
  if s.large and s.count > s.front and s.last > ends then
    large.compact(s)
  end
  if s.large then
    large.set_slot(s, s.count, hold)
    if s.passed == s.count then
      s.next = ends
    end
    s.count, s.last, s.last_cost = s.count + 1, ends, cost
  else
    i = s.count
    while i > s.passed and read('>I6', s.bytes, s.skip + 21 * i - 12) > ends do
      i = i - 1
    end
  end
  s.used, s.reserved, s.active, s.cost = s.used + cost, s.reserved + cost, s.active + 1, cost
  write_holds(s, false, i, 0, hold)
end

-- remember writes that a stream may hold something in a log until then, in milliseconds, with the two checks of a budget. The
-- hold ends at ends, or 0 says that this is not known. With
-- the kind 167 and no name, it writes that the stream has ended and is denied until then.
function remember(known, name, till, kind, pair, ends)
  local logs, log = known.logs
  for i = 1, name and #logs or 0 do
    log = log or logs[i].name == name and logs[i]
  end
  if log and log.ends == ends and till <= known.till then
    return
  elseif log then
    log.ends, log.pair = ends, log.pair or pair
  elseif name then
    logs[#logs + 1] = {name = name, ends = ends, pair = pair}
  end
  known.till = (kind or till > known.till) and till or known.till
  local value, parts = pack('>BI7', kind or 166, known.till)
  for i = 1, #logs do
    local name, pair = logs[i].name, logs[i].pair or ''
    local part = pack('>I6I4', logs[i].ends, #name + (pair ~= '' and 2 ^ 30 or 0)) .. name .. pair
    if #logs == 1 then
      value = value .. part
    else
      parts = parts or {value}
      parts[i + 1] = part
    end
  end
  local life = known.till - math.floor(clock / 1000)
  call('SET', known.key, parts and table.concat(parts) or value, 'PX', string.format('%d', (life > 0 and life or 0) + 1000))
end
