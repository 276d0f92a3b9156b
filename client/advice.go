package client

import (
	"net/http"
	"strings"
	"time"
)

const (
	// longest bounds every time that a server sends. It also keeps sums of times from overflowing.
	longest = 365 * 24 * time.Hour

	// A field with more bytes is ignored, and a list from its next member on.
	maxField   = 4 << 10
	maxMembers = 32

	// Numbers in a server's fields are cut off here.
	maxNumber = int64(1e15)

	// A number in Retry-After or a reset field is a delay below firstEpoch (31 years in seconds, or the
	// year 2001), Unix time in seconds from there on, and Unix time in milliseconds from
	// firstMillis on (the year 5138 in seconds, or 1973 in milliseconds).
	firstEpoch  = int64(1e9)
	firstMillis = int64(1e11)
)

// An advice is what a response says about its limit. Fields that are missing, malformed or
// negative are unknown. Every duration is in [0, longest].
type advice struct {
	retryAfter, reset       time.Duration
	hasRetryAfter, hasReset bool
	// limit requests pass in a window. If window is 0, it is unknown, and limit has no meaning.
	limit  int64
	window time.Duration
	// remaining is -1 if unknown.
	remaining int64
	// quota says that the response has a valid field about a quota.
	quota bool
	// inVain says that no wait helps, because the response has a quota but no wait: requests remain,
	// and this one costs more, or the limit is 0. A wait that cannot be read may help.
	inVain bool
}

// wait returns the time until a denied request has room. Retry-After takes precedence over a
// reset.
func (a advice) wait() (time.Duration, bool) {
	if a.hasRetryAfter {
		return a.retryAfter, true
	}
	return a.reset, a.hasReset
}

// readAdvice reads the fields of a response that arrived at now. If a field is there several
// times, the strictest of its valid values counts.
func readAdvice(h http.Header, now time.Time) advice {
	a := advice{remaining: -1}
	// Absolute times are compared with the server's clock.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	for _, v := range h["Retry-After"] {
		if wait, ok := retryAfter(v, now); ok {
			a.retryAfter, a.hasRetryAfter = max(a.retryAfter, wait), true
		}
	}
	a.readRateLimit(h["Ratelimit"], h["Ratelimit-Policy"])
	unread := len(h["Retry-After"]) > 0
	for _, prefix := range []string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		a.readTriple(h, prefix, now)
		unread = unread || len(h[prefix+"Reset"]) > 0
	}
	for _, m := range members(h["Ratelimit"]) {
		_, t := m.params["t"]
		_, reset := m.params["reset"]
		unread = unread || t || reset || strings.HasPrefix(m.name, "reset=")
	}
	_, known := a.wait()
	a.inVain = a.quota && !known && !unread && (a.remaining > 0 || nothing(h))
	return a
}

// nothing reports whether a field has a limit of 0.
func nothing(h http.Header) bool {
	for _, m := range members(h["Ratelimit-Policy"]) {
		if q, ok := m.number("q"); ok && q == 0 {
			return true
		}
	}
	for _, name := range []string{"Ratelimit-Limit", "X-Ratelimit-Limit", "X-Rate-Limit-Limit"} {
		if all := members(h[name]); len(all) > 0 {
			if n, ok := number(all[0].name); ok && n == 0 {
				return true
			}
		}
	}
	return false
}

// retryAfter reads a delay in seconds, an HTTP date or Unix time, or a list of them, whose longest
// wait counts: a proxy may have joined two fields. A date in the past is a wait of 0.
func retryAfter(value string, now time.Time) (wait time.Duration, ok bool) {
	if len(value) > maxField {
		return 0, false
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		d, valid := fromNow(part, now)
		if !valid && i+1 < len(parts) {
			d, valid = fromNow(part+","+parts[i+1], now) // a date has a comma
		}
		if valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// fromNow reads one member of Retry-After.
func fromNow(text string, now time.Time) (time.Duration, bool) {
	if n, ok := number(text); ok {
		return delay(n, now), true
	}
	at, err := http.ParseTime(strings.TrimSpace(text))
	if err != nil {
		return 0, false
	}
	return bounded(at.Sub(now)), true
}

// delay returns how long it takes until a number of seconds has passed, or until a Unix time.
func delay(n int64, now time.Time) time.Duration {
	switch {
	case n >= firstMillis:
		return bounded(time.UnixMilli(n).Sub(now))
	case n >= firstEpoch:
		return bounded(time.Unix(n, 0).Sub(now))
	}
	return seconds(n)
}

// readRateLimit reads RateLimit and RateLimit-Policy. If several limits are described, the one
// with the fewest requests remaining counts, and of equals the one with the longest reset.
func (a *advice) readRateLimit(limits, policies []string) {
	var name string // of the member that counts
	for _, m := range members(limits) {
		r, hasR := m.number("r", "remaining")
		t, hasT := m.number("t", "reset")
		if !hasR && !hasT {
			// The drafts before 08 have one member for each number.
			a.readMember(m)
			continue
		}
		stricter := a.remaining < 0 || hasR && (r < a.remaining || r == a.remaining && seconds(t) > a.reset)
		a.quota = true
		if !stricter {
			continue
		}
		name, a.reset, a.hasReset = m.name, seconds(t), hasT
		if hasR {
			a.remaining = r
		}
	}
	all, quota := members(policies), a.limit
	for _, m := range all {
		limit, ok := m.number("q")
		if !ok {
			limit, ok = number(m.name) // before 08 a policy has no name
		}
		if len(all) == 1 || m.name == name || quota > 0 && limit == quota {
			a.readPolicy(m, limit, ok)
		}
	}
}

// readMember reads a member of the older RateLimit: limit=100, remaining=50 or reset=30.
func (a *advice) readMember(m member) {
	key, value, ok := strings.Cut(m.name, "=")
	n, isNumber := number(value)
	if !ok || !isNumber {
		return
	}
	switch strings.TrimSpace(key) {
	case "limit":
		a.limit = n
	case "remaining":
		if a.remaining < 0 || n < a.remaining {
			a.remaining = n
		}
	case "reset":
		a.reset, a.hasReset = max(a.reset, seconds(n)), true
	default:
		return
	}
	a.quota = true
}

// readPolicy takes the limit and the window of a policy that counts requests in time.
func (a *advice) readPolicy(m member, limit int64, ok bool) {
	a.quota = a.quota || ok
	window, hasWindow := m.number("w")
	if unit, has := m.params["qu"]; has && unit != "requests" || !ok || !hasWindow || limit == 0 || window == 0 {
		return
	}
	a.limit, a.window = limit, seconds(window)
}

// readTriple reads the fields Limit, Remaining and Reset. They fill in what is unknown.
func (a *advice) readTriple(h http.Header, prefix string, now time.Time) {
	if limits := members(h[prefix+"Limit"]); a.window == 0 && len(limits) > 0 {
		// Of several policies, the one of the limit itself counts.
		limit, ok := number(limits[0].name)
		for _, m := range append(limits, members(h["Ratelimit-Policy"])...) {
			if n, isNumber := number(m.name); isNumber && n == limit {
				a.readPolicy(m, n, ok)
			}
		}
	}
	if a.remaining < 0 {
		for _, m := range members(h[prefix+"Remaining"]) {
			if n, ok := number(m.name); ok && (a.remaining < 0 || n < a.remaining) {
				a.remaining, a.quota = n, true
			}
		}
	}
	if a.hasReset {
		return
	}
	for _, m := range members(h[prefix+"Reset"]) {
		n, ok := number(m.name)
		if !ok {
			continue
		}
		a.reset, a.hasReset, a.quota = max(a.reset, delay(n, now)), true, true
	}
}

// A member is one of a list in a structured field: a name or number, and parameters. Quotes are
// removed. It also holds what is no valid structured field.
type member struct {
	name   string
	params map[string]string
}

// number returns the first of the parameters that is a number.
func (m member) number(names ...string) (int64, bool) {
	for _, name := range names {
		if n, ok := number(m.params[name]); ok {
			return n, true
		}
	}
	return 0, false
}

// members splits the values of a field.
func members(values []string) []member {
	var all []member
	for _, value := range values {
		if len(value) > maxField {
			continue
		}
		for _, text := range split(value, ',') {
			if len(all) == maxMembers {
				return all
			}
			parts := split(text, ';')
			m := member{name: unquote(parts[0]), params: make(map[string]string, len(parts)-1)}
			for _, part := range parts[1:] {
				key, v, _ := strings.Cut(part, "=")
				m.params[strings.TrimSpace(key)] = unquote(v)
			}
			all = append(all, m)
		}
	}
	return all
}

// split cuts a text at each separator outside quotes. It returns at least one part.
func split(text string, separator byte) []string {
	var parts []string
	begin, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

func unquote(s string) string { return strings.Trim(strings.TrimSpace(s), `"`) }

// number reads a decimal number that is not negative, rounded up to an integer and cut off at
// maxNumber. It refuses signs, exponents, NaN and the like.
func number(s string) (int64, bool) {
	whole, fraction, hasFraction := strings.Cut(strings.TrimSpace(s), ".")
	if whole == "" || hasFraction && fraction == "" {
		return 0, false
	}
	var n int64
	for _, c := range []byte(whole) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), maxNumber)
	}
	up := int64(0)
	for _, c := range []byte(fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if c != '0' {
			up = 1
		}
	}
	return min(n+up, maxNumber), true
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(longest/time.Second))) * time.Second
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), longest) }
