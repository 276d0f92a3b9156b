-- look.lua reads a value of the policies that keep a few numbers instead of a log: token
-- buckets, fixed windows, periods of a calendar, and two-window counters. It is a part of the
-- loop of take.lua, with its local variables. It sets now, used, the mark in expiry, major,
-- minor and idle; or corrupt, if the value is not of the policy. With record.lua and rest.lua, it
-- translates bucket.go, period.go and counter.go of package packed, whose comments give the
-- reasons. The same test vectors hold for both, byte by byte.
--
-- The format of a value is '>BI7B' (kind, clock, mark) and then
--   161 token bucket         'I5I6I4'  tokens + 2^32; fraction of a token, in 1/window; life
--   162 fixed, 163 calendar  'I4I7'    used; end of the period in microseconds
--   164 sliding counter      'I4I4'    used in the current window, and in the previous one
-- A number of hits that does not fit makes the value wide: 'BI7I6I4' with the tokens behind their sign, 1 if they are below
-- zero; 'I7I7'; 'I7I7'. The length says whether a value is wide.
local kind, log_clock, mark = 159 + unit, clock, 0
if unit == 2 then
  -- A token bucket. It gains most tokens in each window.
  major, minor = limit, 0
  if size == 24 or size == 27 then
    local life
    if size == 24 then
      kind, log_clock, mark, major, minor, life = read('>BI7BI5I6I4', bytes)
      corrupt = major == 0 or major >= 2 ^ 33
      major = major - 2 ^ 32
    else
      local below
      kind, log_clock, mark, below, major, minor, life = read('>BI7BBI7I6I4', bytes)
      corrupt = major < 2 ^ 32 or major >= 2 ^ 53
      if below > 0 then
        major = -major
      end
    end
    corrupt = corrupt or kind ~= 161 or log_clock > latest_clock or minor >= window
    -- Its key lives until the end of a part of the window, see record.lua.
    local part = math.ceil(window / 4000000) * 1000000
    idle = log_clock + life * 1000000
    idle = idle - idle % part + part
    -- Before the tokens come back: the waits that an earlier answer promised stay true.
    local lowest = limit > 2 ^ 52 and limit - 9007199254740991 or -limit
    if major < lowest then
      major, minor = lowest, 0
    end
    local passed = clock - log_clock
    if passed > 0 and major < limit and not corrupt then
      local gained = passed * most
      if gained < 2 ^ 52 then
        gained = gained + minor
        minor = gained % window
        major = major + (gained - minor) / window
      else
        local windows, parts = math.floor(passed / window)
        gained, parts = muldiv(passed - windows * window, most, window)
        minor = minor + parts
        if minor >= window then
          gained, minor = gained + 1, minor - window
        end
        major = major + (windows * most + gained) -- above 2^53 it is not exact, and the bucket full
      end
    end
    if major >= limit then
      major, minor = limit, 0
    end
  elseif size > 0 then
    corrupt = true
  end
  used = limit - major
elseif unit == 5 then
  -- A sliding counter. A previous window counts by the fraction of it that is not over.
  if size == 17 or size == 23 then
    if size == 17 then
      kind, log_clock, mark, major, minor = read('>BI7BI4I4', bytes)
    else
      kind, log_clock, mark, major, minor = read('>BI7BI7I7', bytes)
      corrupt = major < 2 ^ 32 and minor < 2 ^ 32 or major >= 2 ^ 53 or minor >= 2 ^ 53
    end
    corrupt = corrupt or kind ~= 164 or log_clock > latest_clock
    local began = log_clock - log_clock % window
    idle = began + (major > 0 and 2 or 1) * window
    if clock >= began + 2 * window then
      major, minor = 0, 0
    elseif clock >= began + window then
      major, minor = 0, major
    end
  elseif size > 0 then
    corrupt = true
  end
  if minor > 0 then
    local at = log_clock > clock and log_clock or clock
    used = weigh(minor, window - at % window, window)
  end
  used = used + major
else
  -- A fixed window, or a period of a calendar. A period that is still open stays open until
  -- its end, whatever the check says. minor is the end of the period that a charge begins.
  if size == 20 or size == 23 then
    local count
    if size == 20 then
      kind, log_clock, mark, count, idle = read('>BI7BI4I7', bytes)
    else
      kind, log_clock, mark, count, idle = read('>BI7BI7I7', bytes)
      corrupt = count < 2 ^ 32 or count >= 2 ^ 53
    end
    corrupt = corrupt or kind ~= 159 + unit or log_clock > latest_clock or idle <= log_clock or idle - log_clock > (unit == 3 and window or 400 * 86400 * 1000000)
    if idle > clock and not corrupt then
      used, major = count, idle
    end
  elseif size > 0 then
    corrupt = true
  end
  if restores then
    minor = 0 -- it begins no period
  elseif unit == 3 then
    minor = log_clock > clock and log_clock or clock
    minor = minor - minor % window + window
  elseif clock < (step - most) * 1000000 then
    minor = (step - most) * 1000000
  elseif clock < step * 1000000 then
    minor = step * 1000000
  else
    minor = (step + ahead) * 1000000
  end
  if major == 0 then
    major = minor
  end
end
if log_clock > clock then
  now = log_clock
end
expiry = mark * 2 ^ 32
