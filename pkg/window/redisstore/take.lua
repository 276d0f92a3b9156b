-- take.lua decides one group of checks and charges all of its logs or none.
-- Redis runs a script alone from start to end, so nobody sees half a group; a
-- MULTI could not do it, because what is written depends on what was read.
--
-- KEYS[i]       the log of check i, a sorted set; no key occurs twice
-- ARGV[3i-2]    its window in microseconds
-- ARGV[3i-1]    the limit, at most 2^32-1
-- ARGV[3i]      the cost, at most 2^32: above the limit it is "never" anyway
--
-- Reply: one flat array of integers, five for each check:
--   1 outcome   0 denied, 1 allowed, 2 never
--   2 remaining hits
--   3 microseconds until the cost has room       (RetryAfter)
--   4 microseconds until one unit has room       (UnitAfter)
--   5 microseconds until the log is empty        (ResetAfter)
-- or the error "BADLOG i why" if the value at KEYS[i] is not a log; then nothing
-- was written.
--
-- A log has one member for every microsecond at which something was charged:
--   score    the time in microseconds; a double holds it exactly until the year 2255
--   member   "sum:cost", sum being the running sum of all costs up to and with
--            this one, modulo 2^52 and padded with zeros to 16 digits
-- The cost of any run of members is then one subtraction, and the member whose
-- expiry frees a cost is found by bisecting ranks, in O(log n) steps.
--
-- All reads come before the first write. An error of a read leaves the logs as
-- they were, and denying only reads.
--
-- Numbers become strings with %.0f: Lua's own conversion writes 1.7e+15.

local SUMS = 4503599627370496 -- 2^52: a sum and any difference of two are exact
local MAX_TIME = 2 ^ 53       -- what a double counts one by one
local SLACK_MS = 1000         -- how much longer than its window a key may live

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]

-- parse turns a reply of ZRANGE WITHSCORES for one rank into time, sum and cost;
-- nil if the member is not one of ours.
local function parse(reply)
  local sum, cost = string.match(reply[1] or '', '^(%d+):(%d+)$')
  local at = tonumber(reply[2])
  if not sum or not at or at % 1 ~= 0 or at > MAX_TIME then
    return nil
  end
  return at, tonumber(sum), tonumber(cost)
end

local function bad_log(i, why)
  return redis.error_reply(string.format('BADLOG %d %s', i, why))
end

-- freed returns the time of the first live member at which the running sum,
-- counted from the first live member, reaches cost; nil if a member on the way
-- is not one of ours. cost is from 1 to log.used.
local function freed(log, cost)
  if log.first_cost >= cost then
    return log.first_at -- the usual case: a unit at the limit
  end
  -- The member of rank low is too early, the one of rank high is late enough.
  local low = redis.call('ZCOUNT', log.key, '-inf', log.edge)
  local high = redis.call('ZCARD', log.key) - 1
  local high_at = log.newest_at
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local at, sum = parse(redis.call('ZRANGE', log.key, middle, middle, 'WITHSCORES'))
    if not at then
      return nil
    end
    if (sum - log.base) % SUMS >= cost then
      high, high_at = middle, at
    else
      low = middle
    end
  end
  return high_at
end

-- Step 1: read every log and see whether its check has room.
local logs = {}
local charge = true -- as long as every check has room

for i, key in ipairs(KEYS) do
  local log = {
    key = key,
    window = tonumber(ARGV[3 * i - 2]),
    limit = tonumber(ARGV[3 * i - 1]),
    cost = tonumber(ARGV[3 * i]),
    now = clock,
    used = 0,
    sum = 0,  -- running sum of the newest member
    base = 0, -- running sum just before the first live member
  }

  local newest = redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if newest.err then
    if string.find(newest.err, 'WRONGTYPE', 1, true) then
      return bad_log(i, newest.err)
    end
    return newest
  end

  if newest[1] then
    local at, sum, cost = parse(newest)
    if not at then
      return bad_log(i, 'the newest member is not time, sum and cost')
    end
    log.member, log.newest_at, log.newest_cost, log.sum, log.base = newest[1], at, cost, sum, sum

    -- The clock is held at the newest entry: a failover to a server whose clock
    -- is behind must neither reorder the log nor open a hole in it.
    log.now = math.max(clock, at)

    -- An entry counts until, but not at, its time plus the window, so the first
    -- live one is the first above the edge.
    log.edge = string.format('%.0f', log.now - log.window)
    local first = redis.call('ZRANGEBYSCORE', key, '(' .. log.edge, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[1] then
      local first_at, first_sum, first_cost = parse(first)
      if not first_at then
        return bad_log(i, 'the oldest member is not time, sum and cost')
      end
      log.first_at, log.first_cost = first_at, first_cost
      log.base = (first_sum - first_cost) % SUMS
      log.used = (sum - log.base) % SUMS
    end
  end

  log.need = math.max(log.cost, 1) -- cost 0 asks whether anything remains
  log.room = log.used + log.need <= log.limit
  charge = charge and log.room
  logs[i] = log
end

-- Step 2: answer, still without writing.
local reply = {}

for i, log in ipairs(logs) do
  local outcome = log.room and 1 or log.need > log.limit and 2 or 0
  local used = log.used
  if charge then
    used = used + log.cost
  end
  local remaining = math.max(log.limit - used, 0)

  local retry, unit, reset = 0, 0, 0
  if outcome == 0 then
    local at = freed(log, log.used + log.need - log.limit)
    if not at then
      return bad_log(i, 'a member is not time, sum and cost')
    end
    retry = at + log.window - log.now
  end

  if remaining == 0 and log.limit > 0 then
    local at = log.now -- of an empty log that this charge fills to the limit
    if log.used > 0 then
      at = freed(log, used + 1 - log.limit)
      if not at then
        return bad_log(i, 'a member is not time, sum and cost')
      end
    end
    unit = at + log.window - log.now
  end

  if charge and log.cost > 0 then
    reset = log.window
  elseif log.used > 0 then
    reset = log.newest_at + log.window - log.now
  end

  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = outcome, remaining, retry, unit, reset
end

-- Step 3: record all or none. Only a charge removes what has expired.
if charge then
  for _, log in ipairs(logs) do
    if log.cost > 0 then
      local cost = log.cost
      if log.member then
        redis.call('ZREMRANGEBYSCORE', log.key, '-inf', log.edge)
        if log.newest_at == log.now then
          -- One member for each microsecond: the newest is replaced.
          redis.call('ZREM', log.key, log.member)
          cost = cost + log.newest_cost
        end
      end
      local member = string.format('%016.0f:%.0f', (log.sum + log.cost) % SUMS, cost)
      redis.call('ZADD', log.key, string.format('%.0f', log.now), member)

      -- The key lives until the log's own time has passed the new entry. That may
      -- be longer than the window if the clock was set back: a shorter life would
      -- forget entries that still count.
      local life_ms = math.ceil((log.now - clock + log.window) / 1000) + SLACK_MS
      redis.call('PEXPIRE', log.key, string.format('%.0f', life_ms))
    end
  end
end

return reply
