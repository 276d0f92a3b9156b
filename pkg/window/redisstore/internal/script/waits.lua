-- waits.lua has the arithmetic of token buckets and sliding counters. take.lua runs it when it
-- reads the first such check.

-- muldiv returns floor(a * b / d) and the remainder, of which the first is below 2^53. It is exact, although the product
-- is too large for a number of Lua: for a and d below 2^53, and b below 2^45.
function muldiv(a, b, d)
  local quotient, rest = 0, a * b
  if rest < 2 ^ 52 then
    return (rest - rest % d) / d, rest % d
  end
  rest = 0
  if d >= 2 ^ 45 then
    -- Bit by bit of b. No sum is above d.
    local left = a % d
    quotient = 0
    for shift = 44, 0, -1 do
      quotient = 2 * quotient
      if rest >= d - rest then
        quotient, rest = quotient + 1, rest - (d - rest)
      else
        rest = 2 * rest
      end
      if math.floor(b / 2 ^ shift) % 2 > 0 then
        if rest >= d - left then
          quotient, rest = quotient + 1, rest - (d - left)
        else
          rest = rest + left
        end
      end
    end
    return (a - left) / d * b + quotient, rest
  end
  -- The product in chunks of 7 bits of a, the highest first.
  for shift = a < 2 ^ 49 and 42 or 49, 0, -7 do
    local chunk = math.floor(a / 2 ^ shift) % 128
    local part = rest * 128 + chunk * b
    local times = math.floor(part / d)
    rest = part - times * d
    if rest < 0 then -- part / d was rounded up to a whole number
      times, rest = times - 1, rest + d
    end
    quotient = quotient * 128 + times
  end
  return quotient, rest
end

if unit == 2 then
  -- fills returns the microseconds until a bucket that lacks so many tokens has them, of
  -- which it has a fraction already.
  function fills(lacks, fraction, window, rate)
    if lacks <= 0 then
      return 0
    end
    local wait = lacks * window
    if wait < 2 ^ 52 then
      wait = wait - fraction
      return (wait + -wait % rate) / rate
    end
    local rest
    wait, rest = muldiv(lacks, window, rate)
    local have = math.floor(fraction / rate)
    wait, rest = wait - have, rest - (fraction - have * rate)
    return rest > 0 and wait + 1 or wait
  end
else
  -- weigh returns what a counter's previous window still counts.
  function weigh(previous, left, window)
    local weighted, rest = muldiv(previous, left, window)
    return rest > 0 and weighted + 1 or weighted
  end

  -- falls returns the microseconds until a counter, of which more is used now, is not above
  -- a number. left is the rest of the current window.
  function falls(most, current, previous, left, window)
    if current <= most then
      return left - muldiv(most - current, window, previous)
    end
    return left + window - muldiv(most, window, current)
  end
end
