-- oncerecords.lua keeps idempotency records: what take.lua remembers of a charge, so that a repeat is not charged.
-- It is a part of take.lua, and sets once_records: functions that take.lua calls for a check of unit 7,
-- which comes directly before the check whose charge it is about. It has mode 2, so it is recorded
-- if the group is allowed, and denies nothing. Its fields mean:
--   window  how long an idempotency record lives, in microseconds
--   cost    of the other check
--   most    how many repeats one charge covers
-- Its answer says under remaining: 1 if the other check is a repeat, 0 otherwise.
--
-- The format of a value is '>BI7I4B': kind 168; the end in microseconds; the cost, in 'I7' if it is above 2^32-1; the
-- repeats that were let in. A state also says: covers, the other check is a repeat; stays, no other idempotency record may
-- replace it; room_for_it, whether the other check had room without being a repeat.
once_records = {}

function once_records.look(bytes, _, window, _, _, most, _, _, _, cost)
  local s = {room = true, stays = false, life = window, cost = cost, ends = 0, repeats = 0}
  if bytes ~= '' then
    local kind
    s.wide = #bytes == 16
    if s.wide or #bytes == 13 then
      kind, s.ends, s.paid, s.repeats = read(s.wide and '>BI7I7B' or '>BI7I4B', bytes)
    end
    if kind ~= 168 or s.ends > latest_clock + 86400000000 then -- an idempotency record lives for a day at most
      return nil
    end
    s.stays = clock < s.ends
    s.covers = s.stays and cost <= s.paid and s.repeats < most
  end
  return 0, 0, s
end

function once_records.charge(key, s)
  if s.covers then
    call('SETRANGE', key, s.wide and '15' or '12', string.char(s.repeats + 1))
  elseif s.room_for_it and not s.stays then
    -- Redis keeps a second more than the idempotency record says.
    call('SET', key, pack(s.cost >= 2 ^ 32 and '>BI7I7B' or '>BI7I4B', 168, clock + s.life, s.cost, 0), 'PX', math.ceil(s.life / 1000) + 1000)
  end
end

function once_records.rest(s)
  return s.covers and 1 or 0, 0, 0
end
