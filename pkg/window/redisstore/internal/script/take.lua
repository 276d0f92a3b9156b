-- take.lua decides requests. Each request is a group of checks that is charged at one
-- instant. Redis runs a script alone from start to end, so no other client sees half a
-- group.
--
-- KEYS[i]   the log of check i: a string of bytes in the format of layout.go of package
--           packed. Several checks may name one log.
-- ARGV[1]   '>I7', the earliest of the deadlines in ARGV[2], or 0; then each check,
--           packed as '>BBI2I6I6I7I7I4I4':
--             mode    0 enforce, 1 any, 2 observe, 3 always, 4 refund. +8 if the
--                     charge may be taken back: it then marks the log for a second or
--                     two. +16 asks for that mark if the check is denied or nothing
--                     remains. +128 if a later check of the call has the same log.
--             group   1 for the last check of a group, 0 for others. The last check
--                     also stands for checks that need no log: +2 if one of them
--                     denies the group, +4 if there are checks of mode any, +8 if one
--                     of those has room
--             unit    of the times in the log, in microseconds: 1 or 1,000
--             window  in microseconds
--             step    that times are rounded up to a multiple of, in microseconds:
--                     whole units, at least one
--             limit   below 2^53; of a sliding log below 2^32
--             cost    at most 2^53: no value holds more
--             most    the most slots that the log needs
--             ahead   in microseconds: the charge is recorded at now + ahead, and will
--                     be spent until then
-- ARGV[2]   for each group '>I7': the deadline, an instant of this server's clock in
--           microseconds; 0 for none. A group that comes later is neither judged nor
--           charged. Missing: there is one group, and ARGV[1] has its deadline.
-- ARGV[3]   what the names begin with under which holds.lua keeps in which logs a stream
--           holds something; missing: it does not
-- A check of unit 7 is about the idempotency record of the next check: see oncerecords.lua. Its key is the idempotency record.
-- A check of unit 8 is about what streams have reserved of the log of the next check: see holds.lua. Its key is the holds.
-- ARGV[5]   the call ends a stream, and settles what it has reserved: see settle.lua. Then each check is charged in one
--           pass, and its answer is only what remains.
-- The checks of a group that are recorded whatever the group decides come first,
-- refunds before always. Several groups may follow each other. The script decides
-- them in order, as if each had come alone.
--
-- Reply: one string, for each check '>BI7I7I7I7':
--   outcome    0 denied, 1 allowed, 2 never, 3 not judged. +4 if the value under the
--              key was not a log and was removed. +8 if the check is denied, or
--              nothing remains, and the answer may count hits that are taken back. +16 if
--              a part of the cost was not recorded, because a log holds twice its limit at most
--   remaining  hits. For a group that was not judged: 0 if it came after its deadline,
--              1 if the sender must ask again because too many full rings must move for it
--   retry      microseconds until the cost has room. If a check in flight has room: 1 if its
--              stream holds the cost since now, 0 if it had a hold before
--   unit       microseconds until one unit more has room: until the oldest slot
--              expires, or, if nothing remains, until one unit has room
--   reset      microseconds until the log is empty
-- and at the end '>I7', the server's clock in microseconds.
--
-- Steps:
--   1. Leave out the groups that come after their deadline.
--   2. For each check of a group: read the log, or remove a value that is not a log.
--      Judge the check. Record it, if its mode is recorded whatever the group decides.
--   3. For each check, from the last to the first: record it if the group's verdict
--      says so, then answer it. A group of one check does 2 and 3 in one pass.
--   4. Reply with all answers and the clock.
--
-- This translates log.go and charge.go, whose comments give the reasons. The same test
-- vectors hold for both, byte by byte. Two things are specific to Redis: the expiry of
-- keys, and reading and writing a ring in parts. The formats of struct.pack are
-- '>BI8I4I5' for the header of every log (kind, clock, base, expiry), '>I5I4' for a
-- slot (time, sum), and '>I5I4I4I4I4BB' for the rest of a ring's header (newest slot,
-- head, count, capacity, skip, copies). Kinds are 144 for a small log and 145 for a
-- ring, 2 more if the unit is a millisecond.
--
-- It is one long loop for speed. Each call of the script makes its functions, tables
-- and shared variables anew, and an eighth of a microsecond more per decision adds up.
-- So functions share nothing, and the numbers of a log are local variables.

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]

-- The latest clock of a value that is not corrupt: a day ahead of this server's.
local latest_clock = clock < 2 ^ 52 - 86400000000 and clock + 86400000000 or 2 ^ 52
-- The most slots for which a ring has room, unless its check needs more. A longer one would stop
-- Redis while it is copied. It is 20,000, and two for each of 10,000 parts of the window and the
-- time ahead because of charges over the limit, and a quarter more.
local most_slots = 50006

-- search finds a slot in O(log n) steps, if the header does not have it. With edge, it
-- finds the first slot that is later. With cost, it finds the first slot for which the
-- slots from start up to and including it cost at least that. It begins at slot start;
-- before is the running sum just before that slot. It returns the slot, its time, and
-- the running sum just before it, or nil if the value is shorter than its header says.
local function search(key, bytes, unit, total, start, before, edge, cost)
  local log_clock = struct.unpack('>I8', bytes, 2)
  local ref = (log_clock - log_clock % unit) / unit
  local head, count, capacity, skip, copies
  local ring = string.byte(bytes) % 2 == 1
  if ring then
    head, count, capacity, skip, copies = struct.unpack('>I4I4I4BB', bytes, 28)
  end

  -- passed returns whether slot i is the wanted slot or a later one, its time and its
  -- sum. It returns nil if the value is too short.
  local function passed(i)
    local from, at = bytes, 19 + 9 * i
    if ring then
      if i == count then
        at = 19
      elseif i < copies - skip then
        at = 42 + 9 * (skip + i)
      else
        local position = 131 + 9 * ((head + i) % capacity)
        from, at = redis.call('GETRANGE', key, string.format('%d', position), string.format('%d', position + 8)), 1
        if #from < 9 then
          return nil
        end
      end
    end
    local low, sum = struct.unpack('>I5I4', from, at)
    local t = ref + (low - ref + 2 ^ 39) % 2 ^ 40 - 2 ^ 39
    if edge then
      return t > edge, t, sum
    end
    return (sum - before) % 2 ^ 32 >= cost, t, sum
  end

  -- Double the step from the first slot on, because the wanted slot is usually near.
  -- Then bisect. Slot low is not passed, slot high is.
  local low, low_sum = start - 1, before
  local high, step = start, 1
  local found, t, sum = passed(high)
  while found == false and high < total - 1 do
    low, low_sum = high, sum
    high, step = math.min(high + step, total - 1), 2 * step
    found, t, sum = passed(high)
  end
  while found ~= nil and high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local middle_time, middle_sum
    found, middle_time, middle_sum = passed(middle)
    if found then
      high, t = middle, middle_time
    else
      low, low_sum = middle, middle_sum
    end
  end
  if found == nil then
    return nil
  end
  return high, t, low_sum
end

local keys, args = KEYS, ARGV[1]
local call, try, pack, read = redis.call, redis.pcall, struct.pack, struct.unpack
local n = #keys
local replies = n ~= 1 and keys -- an answer takes the place of its key, so that no table has to grow

-- Leave out the groups that come after their deadline, which is rare. The loop below sees
-- only the others. positions are the numbers of their checks in KEYS.
local positions
local soonest = read('>I7', args)
if clock > soonest and soonest > 0 then
  local late = pack('>BI7I7I7I7', 3, 0, 0, 0, 0)
  local left, group, deadline = {}, 1, read('>I7', ARGV[2] or args)
  keys, positions, replies = {}, {}, {}
  for i = 1, n do
    local check = string.sub(args, 38 * i - 30, 38 * i + 7)
    if deadline == 0 or clock <= deadline then
      left[#left + 1], keys[#keys + 1], positions[#positions + 1] = check, KEYS[i], i
    else
      replies[i] = late
    end
    if string.byte(check, 2) > 0 and i < n then
      group = group + 1
      deadline = read('>I7', ARGV[2], 7 * group - 6)
    end
  end
  n, args = #keys, string.sub(args, 1, 7) .. table.concat(left)
end

-- Rings that are always charged together would fill, and move, in one call. So a call of
-- more than four checks moves a ring early, when only a sixteenth of its room is left. It
-- stops after 256 kB. The next calls move the others. A ring that is too large does not
-- shrink beyond the same 256 kB.
--
-- A full ring must move before it can be charged. A group that must move a full ring
-- after the 256 kB charges nothing, but moves the rings that fit. The sender asks again at
-- once. Calls of up to four checks move all their rings.
local moved, most_moved = 0, 262144

-- The functions of the other policies, made when the first check needs them: no other call
-- pays for them. First the arithmetic of buckets and counters. Then a table of functions for
-- checks in flight:
--   look    takes the bytes and the fields of a check. Returns what is used, the mark of the
--           value times 2^32, and a state; nil if the value is corrupt
--   charge  takes the key, the state, a cost and the mark to write. Records the cost, and
--           changes the state
--   refund  likewise gives a cost back
--   rest    takes the state and the limit. Returns the hits that remain (below zero if
--           more is used), and the waits until one more remains and until nothing is used
--   wait    takes the state, the limit and a cost that has no room and is above 1. Returns
--           the wait until it has
-- A state also says: room, whether the check has room, whatever is used (nil: what is used
-- decides); made, whether the check holds something since now.
local muldiv, fills, weigh, falls
local run -- of rings that are written
local in_flight, once_records
local slot, gone, view_holds, write_holds, cut_hold, known, last_known, put_hold, remember, large, finish, drop, hold_falls, last_paid, over -- of holds
local reserved_of -- the states of what is reserved, by the check of the log
local settled, released, corrupted -- of settle.lua: what the checks settle; whether the stream had a hold; the values that were removed
local once_record_of -- the states of idempotency records, by the check whose charge they are about

-- A single check is judged, charged and answered in one pass. A group of several checks
-- takes two passes: forwards to judge, then backwards to settle, which is to charge and
-- to answer. Backwards, because the first checks may have been recorded when they were
-- judged, and their answers must count what the others charge.
local i, from, last = 1, 1, 1 -- the check, the first and the last of its group
local several, settling
local denied, any, any_room   -- what the checks of the group add up to
local rooms, seen             -- of groups of several: what has room and is not in seen, and what was read
local removed, cut             -- the checks whose value was removed, or cost recorded in part
-- Of a group of several: its full rings; moved_after, the bytes that have moved once these have
-- too; whether they are too many; ask_again, why the sender must ask again (1, 2; nil: it need
-- not); its pass:
--   pass     settling  dry_run  order      its checks are
--   dry run  false     true     forwards   judged, and nothing is recorded
--   judge    false     false    forwards   judged; what is always recorded is recorded
--   settle   true      any      backwards  charged and answered
-- Only a group that begins with checks that are recorded when they are judged has a dry run, and
-- dry_run_over says that it had one. If too many full rings must move, the group is settled without
-- being judged again, and the sender asks again.
local full_rings, moved_after, too_many, ask_again, dry_run, dry_run_over

if ARGV[5] then
  -- include settle.lua
end

-- Logs that groups have charged and that later groups of the call have too. If such a group charges the newest slot,
-- it changes only used, and the sum of the slot is written when the call ends. Modes always and refund leave no log here.
local busy
local failed -- the error of a read

while i <= n do
  local mode, group, unit, window, step, limit, cost, most, ahead = read('>BBI2I6I6I7I7I4I4', args, 38 * i - 30)
  local key = keys[i]
  if unit == 6 or unit == 8 then
    if not view_holds then
      -- include holds.lua
      -- include adds.lua
    end
    if unit == 8 then
      -- What is reserved of the next log, with which this check is judged and answered.
      local bytes, pair, s = try('GETRANGE', key, '0', '729'), string.sub(args, 38 * i - 30, 38 * i + 45)
      if type(bytes) == 'table' and not string.find(bytes.err, 'WRONGTYPE', 1, true) then
        failed = bytes -- an error, but not about the value
        break
      end
      -- include reserves.lua
      reserved_of = reserved_of or {}
      if dry_run_over and reserved_of[i + 1].removed then
        s.removed = true -- in the dry run
      end
      reserved_of[i + 1] = s
      if i == from then
        from, last = i + 1, i + 1
      end
      i, key = i + 1, keys[i + 1]
      local flags = mode
      mode, group, unit, window, step, limit, cost, most, ahead = read('>BBI2I6I6I7I7I4I4', args, 38 * i - 30)
      if flags % 64 >= 32 and mode % 64 < 32 then
        mode = mode + 32 -- the first check says that the group has calendars
      end
    end
  end
  local reserves, asks, dated, restores, repeats
  if mode > 4 then
    mode, reserves, asks, dated, restores, repeats = mode % 8, mode % 16 >= 8, mode % 32 >= 16, mode % 64 >= 32, mode % 128 >= 64, mode >= 128
  end
  if i == from and not settling then
    denied, any, any_room = false, false, false
    several = group == 0 or mode >= 3 and not settled
    settling = not several
    if several then
      rooms, seen = rooms or {}, seen or {false, false, false, false} -- most calls need no more
      if not dry_run_over then
        full_rings, moved_after, too_many = nil, moved, false
        dry_run = group == 0 and mode >= 3 and n > 4 and not settled
      end
    end
    if dated then
      -- The group has calendars. If the periods of one contradict the clock, nothing of
      -- the group may be charged.
      local j, last_of_group = i, 0
      while last_of_group == 0 do
        local j_unit, j_ends, j_length, j_next
        last_of_group, j_unit, j_ends, j_length, j_next = read('>BI2xxxxxxI6xxxxxxxxxxxxxxI4I4', args, 38 * j - 29)
        if j_unit == 4 and (clock >= (j_ends + j_next) * 1000000 or clock < (j_ends - j_length - 60) * 1000000) then
          ask_again = 2
        end
        j = j + 1
      end
    end
  end

  -- What a check of another policy than the sliding log needs:
  --   major, minor  of a bucket its tokens and the fraction of one, of a counter what is used
  --                 in the current window and in the previous one, of a period its end and
  --                 the end of the one that a charge begins
  --   idle          the key lives at least until then; 0 if there is none
  --   full_after    microseconds until a bucket is full, once that is known
  --   policy, state of a check in flight
  local other, header = unit > 1 and unit < 9, '135'
  local counts, major, minor, idle, full_after -- of a policy that keeps a few numbers
  local policy, state
  if other then
    counts, major, minor, idle = unit < 6, 0, 0, 0
    if unit == 6 then
      if not in_flight then
        -- include inflight.lua
      end
      policy, header = in_flight, '729' -- the header and 32 slots
    elseif unit == 7 then
      if not once_records then
        -- include oncerecords.lua
      end
      policy, header = once_records, '16'
    elseif unit ~= 3 and unit ~= 4 and not (unit == 2 and fills or unit == 5 and falls) then
      -- include waits.lua
    end
  end

  local busy_log = busy and busy[key]
  if busy_log then
    local up = busy_log.now + ahead + step - 1
    if mode > 2 or reserves or cost > limit - busy_log.used or reserved_of and reserved_of[i] or (up - up % step) / unit > busy_log.newest then
      -- This check needs more of the log.
      if busy_log.changed then
        call('SETRANGE', key, busy_log.at, pack('>I4', busy_log.before + busy_log.used))
      end
      busy[key], busy_log = nil, nil
    end
  end

  -- Read the log, unless judging has read it: a small log and one byte more, or a ring's
  -- header. A value that is not a log is called corrupt.
  local view = several and seen[i]
  local bytes = view and view[1] or busy_log and '' or try('GETRANGE', key, '0', header)
  local size, corrupt, room = #bytes, false, false
  local ring, full, expiry, now = false, false, 0, clock
  local head, count, capacity, skip, copies -- of a ring
  local total, live = 0, 0      -- number of slots; index of the first that counts, from 0
  local used, before = 0, 0     -- cost of the slots that count; running sum just before them
  local first, newest = 0, 0    -- times in units of the first slot that counts and of the last
  if view then
    bytes, ring, expiry, now, total, live, used, before, first, newest, room, state, major, minor, idle = unpack(view, 1, 15)
    if ring then
      head, count, capacity, skip, copies = read('>I4I4I4BB', bytes, 28)
    end
  elseif busy_log then
    now, used, before, first, newest = busy_log.now, busy_log.used, busy_log.before, busy_log.first, busy_log.newest
  elseif other and type(bytes) == 'string' then
    if counts then
      -- include look.lua
    else
      used, expiry, state = policy.look(bytes, unit, window, limit, step, most, ahead, restores, key, cost)
      corrupt = not used
      if unit == 7 then
        once_record_of = once_record_of or {}
        once_record_of[i + 1] = state
      end
    end
  elseif size >= 18 then
    -- The header: total is the number of slots. The oldest slots begin at at in bytes;
    -- copied is how many follow there: all of a small log, or the copies of a ring.
    local kind, log_clock, base, low, sum, at, copied
    if size == 136 then
      kind, log_clock, base, expiry, low, sum, head, count, capacity, skip, copies = read('>BI8I4I5I5I4I4I4I4BB', bytes)
    elseif size >= 27 then
      kind, log_clock, base, expiry, low, sum = read('>BI8I4I5I5I4', bytes)
    else
      kind, log_clock, base, expiry = read('>BI8I4I5', bytes)
    end
    local oldest, slot_sum = low, sum -- of a small log
    local small = unit == 1 and 144 or 146
    corrupt = log_clock > latest_clock
    if kind == small and size % 9 == 0 then
      total, at = (size - 18) / 9, 19
      copied = total
      if total > 1 then
        low, sum = read('>I5I4', bytes, size - 8)
      end
    elseif kind == small + 1 and size == 136 then
      ring, full, total, at, copied = true, count == capacity, count + 1, 42 + 9 * skip, copies - skip
      corrupt = corrupt or capacity > most_slots and capacity > 1.25 * most + 25005 or head >= capacity or count > capacity or copies > 10 or copied < 1 or copied > count
    else
      corrupt = true
    end

    -- A clock that is set back must neither reorder the log nor bring back what has
    -- expired.
    if log_clock > clock then
      now = log_clock
    end
    before = base
    if total > 0 and not corrupt then
      -- The times. A slot of the time edge has just expired. Five bytes are enough for
      -- a time, because it is less than 2^39 units away from the log's clock.
      local ref, edge = log_clock, now - window
      if unit > 1 then
        ref, edge = (log_clock - log_clock % unit) / unit, math.floor(edge / unit)
      end
      newest = ref + (low - ref + 2 ^ 39) % 2 ^ 40 - 2 ^ 39
      if newest <= edge then
        live, before = total, sum
      else
        first = newest
        if ring then
          oldest, slot_sum = read('>I5I4', bytes, at)
        end
        while total > 1 and live < copied do
          local t = ref + (oldest - ref + 2 ^ 39) % 2 ^ 40 - 2 ^ 39
          if t > edge then
            first = t
            break
          end
          live, before = live + 1, slot_sum
          if live < copied then
            oldest, slot_sum = read('>I5I4', bytes, at + 9 * live)
          end
        end
        if live == copied and live < total - 1 then
          live, first, before = search(key, bytes, unit, total, live, before, edge)
          corrupt = not live
        end
        used = not corrupt and (sum - before) % 2 ^ 32
      end
    end
  elseif bytes ~= '' then
    corrupt = true
    if type(bytes) == 'table' and not string.find(bytes.err, 'WRONGTYPE', 1, true) then
      failed = bytes -- an error, but not about the value
      break
    end
  end

  -- Judge the check, and update the group's verdict.
  if view then
    -- room is known.
  elseif several and settling then
    room = rooms[i]
  elseif not corrupt then
    room = mode == 4 or used < limit and cost <= limit - used
    if state and state.room ~= nil and mode ~= 4 then
      room = state.room
    end
    local res = reserved_of and reserved_of[i]
    if res then
      room = res.ended == 0 and (res.cost > 0 or res.free and used < limit - res.used and cost <= limit - res.used - used)
    end
    local once_record = once_record_of and once_record_of[i]
    if once_record then
      once_record.room_for_it = room
      room = room or once_record.covers
    end
    if mode == 0 then
      denied = denied or not room
    elseif mode == 1 then
      any, any_room = true, any_room or room
    end
    if group > 1 then -- there are checks without a log
      denied = denied or group % 4 >= 2
      any, any_room = any or group % 8 >= 4, any_room or group >= 8
    end
    if several then
      if mode > 2 then
        rooms[i] = room
      end
      if full and live == 0 and n > 4 and not dry_run_over and (group == 0 or i > from) and cost > 0 and (room or mode == 3) and mode < 4 then
        full_rings = full_rings or {}
        full_rings[i] = true
        too_many = moved_after >= most_moved
        moved_after = too_many and moved_after or moved_after + 131 + 9 * math.floor(total * 1.25)
      end
      if dry_run then
        if group > 0 and too_many then
          last, settling, ask_again = i, true, 1
        end
      elseif mode < 3 then
        if group > 0 then
          last, settling = i, true -- all are judged
          if full_rings and not dry_run_over and not ask_again and not denied and (any_room or not any) then
            ask_again = too_many and 1
            moved = ask_again and moved or moved_after
          end
        else
          seen[i] = {bytes, ring, expiry, now, total, live, used, before, first, newest, room, state, major, minor, idle}
        end
      end
    end
  end

  -- What to record: a charge, what a refund leaves, or a full ring in more room.
  local charge, refund, grows = 0, false, false
  if corrupt or dry_run and not settling then
    -- A corrupt value is removed below; after a dry run a check is judged once more.
  elseif ask_again then
    grows = full_rings and full_rings[i] and moved < most_moved
  elseif mode < 3 then
    if settling and room and not denied and (any_room or not any) then
      local once_record = once_record_of and once_record_of[i]
      charge = once_record and once_record.covers and 0 or cost
      local res = reserved_of and reserved_of[i]
      if res then
        charge = 0
        if cost > 0 and res.cost == 0 then
          res.reserves = cost
          if unit == 2 then
            charge = math.max(math.min(res.used - res.reserved, 2 * limit - used, 9007199254740991 - used), 0) -- for the holds that have expired
          end
        end
      end
    end
  elseif settling and several then
    -- It was recorded when it was judged.
  elseif mode == 3 then
    if policy then
      charge = cost
    else
      -- A log holds twice its limit at most, and 2^53-1 hits, or 2^32-1 in slots.
      charge = math.max(math.min(cost, 2 * limit - used, (other and 9007199254740991 or 4294967295) - used), 0)
      if cut or charge < cost then
        cut = cut or {}
        cut[i] = charge < cost
      end
      if settled then
        settled[i].charged = charge
      end
    end
  elseif cost > 0 and used > 0 then
    refund = true
    if policy or counts then
      -- It is written below.
    elseif used <= cost then
      used, total = 0, live
    else
      local last
      used = used - cost
      last, newest = search(key, bytes, unit, total, live, before, nil, used)
      corrupt = not last
      total = not corrupt and last + 1
    end
  end

  local writes, mark = (charge > 0 or refund or grows) and not corrupt, 0
  if writes and (reserves or expiry >= 2 ^ 32) then
    -- The first byte of the expiry marks a charge that may be taken back: the second of
    -- the charge, modulo 255, plus 1. The next charge removes a mark that is over.
    if expiry >= 2 ^ 32 then
      mark, expiry = math.floor(expiry / 2 ^ 32), expiry % 2 ^ 32
    end
    local second = math.floor(clock / 1000000) % 255
    if reserves and charge > 0 then
      mark = second + 1
    elseif (second + 1 - mark) % 255 > 1 then
      mark = 0
    end
  end
  if not writes then
    -- Nothing changes.
  elseif busy_log then
    used = used + charge
    busy_log.used, busy_log.changed = used, true
  elseif counts then
    -- include record.lua
    expiry = mark * 2 ^ 32
  elseif policy then
    if refund then
      policy.refund(key, state, cost, mark)
    else
      policy.charge(key, state, charge, mark)
    end
    expiry = mark * 2 ^ 32
  else
    -- Write the log without its expired slots. need is its number of slots afterwards,
    -- kept how many of them it has now.
    local kept = total - live
    local need = kept
    used = used + charge
    if charge > 0 then
      if kept >= 10000 and kept >= most then
        step = math.max(step, math.ceil(window / 10000 / unit) * unit) -- because of charges over the limit, or of finer times before
      end
      local up = now + ahead + step - 1
      local t = (up - up % step) / unit
      -- Slots are in the order of their times. If the newest is ahead, it takes the cost.
      if kept == 0 or t > newest then
        need, newest = kept + 1, t
      end
      if kept == 0 then
        first = t
      end
    end
    local sum = before + used -- packing takes it modulo 2^32

    -- The key lives until the log's own clock has passed its newest slot, which is long
    -- if the clock was set back. A quarter of the window more saves a new expiry with
    -- each charge.
    local life
    local ends = newest * unit + window
    local latest = latest_clock + ahead + step + window -- later only in a corrupt value
    if ends > latest then
      ends = latest
    end
    if need > 0 and (ends > expiry * 1000000 or expiry * 1000000 > latest + window / 4 + 2000000) then
      expiry = math.ceil(ends / 1000000) + math.ceil(window / 4000000)
      life = math.max(math.ceil((expiry * 1000000 - clock) / 1000), 1) -- an expiry in the past: bytes that only look like a log
    end
    expiry = expiry + mark * 2 ^ 32

    local kind = unit == 1 and 144 or 146
    local whole -- the bytes, unless they are written in place
    if ring and not run then
      -- run reads consecutive slots of a ring's circle, the first at head, as two strings: up
      -- to the end of the circle, and from its start. They are too short if the value is
      -- shorter than its header says. It does not join them, because Lua
      -- reads every byte of each string that it makes.
      function run(key, head, capacity, slots)
        local straight = math.min(slots, capacity - head)
        if slots <= 0 then
          return '', ''
        end
        local text = redis.call('GETRANGE', key, string.format('%d', 131 + 9 * head), string.format('%d', 130 + 9 * (head + straight)))
        if slots > straight then
          return text, redis.call('GETRANGE', key, '131', string.format('%d', 130 + 9 * (slots - straight)))
        end
        return text, ''
      end
    end
    if not ring and need <= 13 and need > 0 then
      -- A small log that stays one.
      local older = string.sub(bytes, 19 + 9 * live, 9 + 9 * (live + need))
      whole = pack('>BI8I4I5c0I5I4', kind, now, before, expiry, older, newest, sum)
    elseif need == 0 then
      whole = pack('>BI8I4I5', kind, now, before, expiry)
    else
      if ring then
        head = (head + live) % capacity
      end
      local moves = not ring or need <= 6 or need - 1 > capacity or grows or need - 1 <= capacity / 4 and moved < most_moved
      if not moves and n > 4 and moved < most_moved and capacity < most - 1 then
        moves = need - 1 > capacity - math.floor(capacity / 16)
      end

      if ring and need - 1 > capacity and moved >= most_moved and n > 4 and group > 0 and i == from and not settled then
        ask_again = 1 -- the one check of its group
      elseif not moves then
        -- A ring that stays in place. Write the header, with new copies if they are used
        -- up, and the slot that moves from the header into the circle.
        local fresh = ''
        if refund then
          copies = math.min(copies, skip + total - 1) -- it may have removed copied slots
        end
        skip = skip + live
        if skip >= copies then
          skip, copies = 0, math.min(kept - 1, 10)
          local early, later = run(key, head, capacity, copies)
          fresh = early .. later
        end
        local header = pack('>BI8I4I5I5I4I4I4I4BB', kind + 1, now, before, expiry, newest, sum, head, need - 1, capacity, skip, copies)
        -- The reply is the length of the value. So a corrupt value shows before anything is
        -- written behind its end.
        corrupt = call('SETRANGE', key, '0', header .. fresh) ~= 131 + 9 * capacity
        if need > kept and not corrupt then
          local position = 131 + 9 * ((head + kept - 1) % capacity)
          call('SETRANGE', key, string.format('%d', position), string.sub(bytes, 19, 27))
        end
        if life and not corrupt then
          call('PEXPIRE', key, life)
        end
      else
        -- A log that moves. All slots but the newest are older, then later, then pushed.
        local older, later, pushed = '', '', ''
        if not ring then
          older = string.sub(bytes, 19 + 9 * live, 9 + 9 * (live + need))
        else
          older, later = run(key, head, capacity, kept - 1)
          corrupt = #older + #later < 9 * (kept - 1)
          if need > kept and kept > 0 then
            pushed = string.sub(bytes, 19, 27)
          end
        end
        if corrupt then
          -- The header is wrong: do not use its numbers.
        elseif need <= 6 then
          whole = pack('>BI8I4I5c0I5I4', kind, now, before, expiry, older .. later .. pushed, newest, sum)
        else
          -- Room for a quarter more slots, but at most for as many as the log needs.
          count = need - 1
          local slots = grows and count + 1 or count -- the charge that is asked again needs a slot
          capacity = slots + math.max(math.floor(slots / 4), 1)
          if slots < most then
            capacity = math.min(capacity, most - 1)
          end
          copies = math.min(kept - 1, 10)
          whole = pack('>BI8I4I5I5I4I4I4I4BB', kind + 1, now, before, expiry, newest, sum, 0, count, capacity, 0, copies)
            .. string.sub(older, 1, 9 * copies) .. string.sub(later, 1, math.max(9 * copies - #older, 0)) .. string.rep('\0', 90 - 9 * copies)
            .. older .. later .. pushed .. string.rep(string.rep('\0', 9), capacity - count)
          if ask_again or not (several and full_rings and full_rings[i]) then
            moved = moved + #whole -- otherwise moved_after has it
          end
        end
      end
    end
    if whole and not corrupt then
      if life then
        call('SET', key, whole, 'PX', life)
      elseif #whole == size and not ring then
        call('SETRANGE', key, '0', whole) -- costs less than SET
      else
        call('SET', key, whole, 'KEEPTTL')
      end
    end
    if repeats and mode < 3 and mark == 0 and not corrupt and not ask_again then
      busy = busy or {}
      busy[key] = {
        now = now, used = used, before = before, first = first, newest = newest,
        at = whole and string.byte(whole) == kind and #whole - 4 or 23, -- where its value has the sum of the newest slot
      }
    end
  end

  local res = reserved_of and reserved_of[i]
  if settling and ask_again and not corrupt then
    local reply = pack('>BI7I7I7I7', 3, ask_again, 0, 0, 0)
    if not replies then
      return reply .. pack('>I7', clock)
    end
    replies[positions and positions[i] or i] = reply
    if res then
      replies[positions and positions[i - 1] or i - 1] = reply
    end
  elseif settling and settled and not corrupt then
    settled[i].remaining = math.max(unit == 2 and major or limit - used, 0) -- hits
  elseif settling and not corrupt then
    -- Answer as the log is now. Waits count from the server's clock. If that was set back,
    -- they include the time to catch up.
    local whole_limit = limit
    if res then
      if res.reserves then
        -- The stream holds the cost. A bucket was charged for the holds that have expired.
        local s, cost = res, res.reserves
        s.length = math.min(s.length > 0 and s.length or s.terms.length, s.terms.length)
        if s.terms.fill and large then -- otherwise none has expired
          large.pay(s)
        end
        if s.hold and s.hold >= s.front then
          cut_hold(s, 0) -- the stream had ended, and is not denied any more
        end
        put_hold(s, s.ends, cost)
        s.made, s.hold, s.reserves = true, nil, nil
        if s.known then
          remember(s.known, s.key, math.ceil(gone(s, s.ends, cost) / 1000), nil, s.pair, s.ends)
        end
      end
      -- The log answers for the room next to what is reserved.
      limit = limit - math.min(res.used, limit)
      if unit == 2 then
        major = major - (whole_limit - limit) -- the tokens
      end
    end
    local outcome, remaining, retry, unit_after, reset = 1, limit - used, 0, 0, 0
    if other then
      if counts then
        -- include rest.lua
      else
        remaining, unit_after, reset = policy.rest(state, limit)
      end
    elseif used > 0 then
      reset = newest * unit + window - clock
      if limit > 0 then
        local t = first -- each slot holds a unit at least
        if remaining < 0 then
          local slot
          slot, t = search(key, bytes, unit, total, live, before, nil, 1 - remaining)
          corrupt = not slot
        end
        unit_after = not corrupt and t * unit + window - clock
        if unit_after and unit_after < 0 then
          unit_after = 0
        end
      end
    end
    if not room then
      outcome = 0
      if cost > limit or limit == 0 then
        outcome = 2
      elseif cost <= 1 and not (state and state.room == false) then
        retry = unit_after
      elseif policy then
        retry = policy.wait(state, limit, cost)
      elseif counts then
        -- rest.lua has set it.
      elseif cost > remaining and not corrupt then
        local slot, t = search(key, bytes, unit, total, live, before, nil, cost - remaining)
        corrupt = not slot
        retry = not corrupt and math.max(t * unit + window - clock, 0)
      end
    end
    if res then
      if not over and (not room or limit == 0 or unit_after == 0 or res.last_cost == 0) then
        -- include falls.lua
      end
      if res.used > 0 then
        reset = math.max(reset, res.last_cost > 0 and gone(res, res.last, 1) - clock or over(res), 1)
        if limit == 0 then
          unit_after = hold_falls(res, whole_limit - 1)
        elseif unit_after == 0 then
          unit_after = hold_falls(res, res.used - 1)
        end
      end
      local need = math.max(cost, 1)
      if room then
        -- There is no wait for the cost.
      elseif need > whole_limit then
        outcome, retry = 2, 0
      else
        outcome = 0
        if need > limit then
          retry = hold_falls(res, whole_limit - need)
        elseif retry == 0 and res.ended == 0 and res.used > 0 then
          retry = hold_falls(res, res.used - 1) -- there are too many holds
        end
        if res.ended > 0 then
          retry = math.max(retry, res.ended * 1000 - clock)
        end
      end
    end
    if state and state.made and room then
      retry = 1
    end
    if asks and outcome ~= 2 and (not room or remaining <= 0) and expiry >= 2 ^ 32 and (math.floor(clock / 1000000) + 1 - math.floor(expiry / 2 ^ 32)) % 255 <= 1 then
      outcome = outcome + 8
    end
    if removed and removed[i] then
      outcome = outcome + 4
    end
    if cut and cut[i] then
      outcome = outcome + 16
    end
    if not corrupt then
      if remaining < 0 then
        remaining = 0
      end
      if not replies then
        return pack('>BI7I7I7I7I7', outcome, remaining, retry, unit_after, reset, clock)
      end
      replies[positions and positions[i] or i] = pack('>BI7I7I7I7', outcome, remaining, retry, unit_after, reset)
      if res then
        replies[positions and positions[i - 1] or i - 1] = pack('>BI7I7I7I7', res.removed and 5 or 1, ((res.free or res.ended > 0) and 0 or 1) + 2 * (res.written and res.expired or 0), res.made and 1 or 0, res.reserved, res.written and res.expired_units or 0)
      end
    end
  end

  if corrupt then
    -- Remove the value, and judge the check again.
    call('UNLINK', key)
    removed = removed or {}
    removed[i] = true
    settling = several and settling
    if several then
      seen[i], rooms[i] = nil, room
    end
  else
    if mode == 3 and not settling then
      denied = denied or not room
    end
    if settling and i > from then
      i = i - (res and 2 or 1)
    elseif settling then
      i, from, settling = last + 1, last + 1, false
      last, ask_again, dry_run, dry_run_over = i, false, false, false
    elseif dry_run and group > 0 then
      i, dry_run, dry_run_over, moved = from, false, true, moved_after
    elseif group > 0 then
      last, settling = i, true
    else
      i = i + 1
    end
  end
end
for key, log in pairs(busy or {}) do
  if log.changed then
    call('SETRANGE', key, log.at, pack('>I4', log.before + log.used))
  end
end
if failed then
  return failed
end
if settled then
  local reply = pack('>BB', released, math.min(corrupted, 255))
  for j = 1, #settled do
    local s = settled[j]
    local state = s.holds
    reply = reply .. pack('>BI2I7I7I7I7I7I4', s.number, state.written and state.expired or 0, state.written and state.expired_units or 0, s.reserved, math.max(s.charged - s.due, 0), math.max(s.remaining - state.used, 0), state.reserved, #s.name) .. s.name
  end
  return reply
end
replies[#KEYS + 1] = pack('>I7', clock)
return table.concat(replies)
