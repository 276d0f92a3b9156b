package client

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// now is the local time of the tests.
var now = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

// header makes a header of lines "Name: value".
func header(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestReadAdvice(t *testing.T) {
	unix := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for _, test := range []struct {
		name string
		h    http.Header
		want advice
	}{
		{"nothing", header("Content-Type: text/plain"), advice{remaining: -1}},

		{"Retry-After: seconds", header("Retry-After: 13"), after(13 * time.Second)},
		{"Retry-After: 0", header("Retry-After: 0"), after(0)},
		{"Retry-After: a fraction is rounded up", header("Retry-After: 1.2"), after(2 * time.Second)},
		{"Retry-After: date", header("Retry-After: Thu, 05 Nov 2026 12:00:30 GMT"), after(30 * time.Second)},
		{"Retry-After: date of RFC 850", header("Retry-After: Thursday, 05-Nov-26 12:00:30 GMT"), after(30 * time.Second)},
		{"Retry-After: date of asctime", header("Retry-After: Thu Nov  5 12:00:30 2026"), after(30 * time.Second)},
		{"Retry-After: date by the server's clock", header("Date: Thu, 05 Nov 2026 09:00:00 GMT", "Retry-After: Thu, 05 Nov 2026 09:00:30 GMT"), after(30 * time.Second)},
		{"Retry-After: date in the past", header("Retry-After: Thu, 05 Nov 2026 11:00:00 GMT"), after(0)},
		{"Retry-After: far date", header("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"), after(longest)},
		{"Retry-After: 10^18", header("Retry-After: 1000000000000000000"), after(longest)},
		{"Retry-After: 10^40", header("Retry-After: 1" + strings.Repeat("0", 40)), after(longest)},
		{"Retry-After: negative", header("Retry-After: -5"), advice{remaining: -1}},
		{"Retry-After: NaN", header("Retry-After: NaN"), advice{remaining: -1}},
		{"Retry-After: infinity", header("Retry-After: +Inf"), advice{remaining: -1}},
		{"Retry-After: exponent", header("Retry-After: 1e3"), advice{remaining: -1}},
		{"Retry-After: hexadecimal", header("Retry-After: 0x10"), advice{remaining: -1}},
		{"Retry-After: unit", header("Retry-After: 5s"), advice{remaining: -1}},
		{"Retry-After: empty", header("Retry-After: "), advice{remaining: -1}},
		{"Retry-After: only a point", header("Retry-After: ."), advice{remaining: -1}},
		{"Retry-After: too long", header("Retry-After: " + strings.Repeat("0", maxField) + "5"), advice{remaining: -1}},
		{"Retry-After: joined", header("Retry-After: 5, 9"), after(9 * time.Second)},
		{"Retry-After: joined dates", header("Retry-After: Thu, 05 Nov 2026 12:00:30 GMT, Thu, 05 Nov 2026 12:00:40 GMT"), after(40 * time.Second)},
		{"Retry-After: joined with what is no time", header("Retry-After: x, 5,, Thu, 05 Nov 2026 12:00:03 GMT"), after(5 * time.Second)},
		{"Retry-After: Unix time", header("Retry-After: " + unix(13*time.Second)), after(13 * time.Second)},
		{"Retry-After: Unix time in milliseconds", header("Retry-After: " + unix(13*time.Second) + "000"), after(13 * time.Second)},
		{"Retry-After: Unix time in the past", header("Retry-After: " + unix(-time.Hour)), after(0)},
		{"nothing remains, no reset", header("X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0"), advice{remaining: 0, quota: true}},
		{"nothing remains, draft 10 without t", header(`RateLimit: "a";r=0`), advice{remaining: 0, quota: true}},
		{"nothing remains, a reset that cannot be read", header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: soon"), advice{remaining: 0, quota: true}},
		{"some remain, a reset that cannot be read", header("X-RateLimit-Remaining: 3", "X-RateLimit-Reset: -1"), advice{remaining: 3, quota: true}},
		{"some remain, a Retry-After that cannot be read", header("X-RateLimit-Remaining: 3", "Retry-After: soon"), advice{remaining: 3, quota: true}},
		{"some remain, a t that cannot be read", header(`RateLimit: "a";r=3;t=x`), advice{remaining: 3, quota: true}},
		{"some remain, no reset", header("X-RateLimit-Remaining: 3"), advice{remaining: 3, quota: true, inVain: true}},
		{"a limit of 0", header("X-RateLimit-Limit: 0", "X-RateLimit-Remaining: 0"), advice{remaining: 0, quota: true, inVain: true}},
		{"only a policy", header("RateLimit-Policy: 10;w=60"), advice{limit: 10, window: time.Minute, remaining: -1, quota: true}},
		{"joined", header("X-RateLimit-Remaining: 5, 0", "X-RateLimit-Reset: 3, 9"), advice{remaining: 0, reset: 9 * time.Second, hasReset: true, quota: true}},
		{"Retry-After: twice", header("Retry-After: 5", "Retry-After: 9", "Retry-After: x"), after(9 * time.Second)},

		{
			"draft 10", header(`RateLimit-Policy: "per-key";q=100;w=60, "per-address";q=50000;w=60`, `RateLimit: "per-key";r=99;t=60`),
			quota(100, time.Minute, 99, 60*time.Second),
		},
		{
			"draft 10: the limit with the fewest remaining", header(`RateLimit-Policy: "a";q=10;w=1,"b";q=1000;w=86400`, `RateLimit: "a";r=9;t=1, "b";r=2;t=80000`),
			quota(1000, 24*time.Hour, 2, 80000*time.Second),
		},
		{
			"draft 10: of two with nothing remaining, the longer reset", header(`RateLimit: "a";r=0;t=1, "b";r=0;t=9, "c";r=0;t=3`),
			advice{remaining: 0, reset: 9 * time.Second, hasReset: true, quota: true},
		},
		{"draft 10: two lines", header(`RateLimit: "a";r=4;t=1`, `RateLimit: "b";r=3;t=9`), advice{remaining: 3, reset: 9 * time.Second, hasReset: true, quota: true}},
		{
			"draft 10: separators in a name", header(`RateLimit-Policy: "a,b;q=7\"";q=5;w=2, "x";q=1;w=1`, `RateLimit: "a,b;q=7\"";r=1;t=2`),
			quota(5, 2*time.Second, 1, 2*time.Second),
		},
		{
			"draft 10: no wait helps", header(`RateLimit-Policy: "export";q=50;w=60`, `RateLimit: "export";r=50`),
			advice{limit: 50, window: time.Minute, remaining: 50, quota: true, inVain: true},
		},
		{
			"draft 10: another unit", header(`RateLimit-Policy: "open";q=5;qu="concurrent-requests"`, `RateLimit: "open";r=0;t=1`),
			advice{remaining: 0, reset: time.Second, hasReset: true, quota: true},
		},
		{
			"draft 10: bytes in a window", header(`RateLimit-Policy: "size";q=5000;qu="content-bytes";w=10`, `RateLimit: "size";r=10;t=1`),
			advice{remaining: 10, reset: time.Second, hasReset: true, quota: true},
		},
		{"draft 10: negative", header(`RateLimit: "a";r=-1;t=-5`), advice{remaining: -1}},
		{"draft 10: no parameters", header(`RateLimit: "a", ;;,=,"`), advice{remaining: -1}},
		{"draft 10: too long", header(`RateLimit: "` + strings.Repeat("a", maxField) + `";r=0;t=5`), advice{remaining: -1}},
		{"draft 10: too many", header("RateLimit: " + strings.Repeat(`"a",`, maxMembers) + `"a";r=0;t=5`), advice{remaining: -1}},
		{"draft 10: a window of 0", header(`RateLimit-Policy: "a";q=5;w=0`, `RateLimit: "a";r=5;t=0`), advice{remaining: 5, hasReset: true, quota: true}},
		{"draft 10: a quota of 0", header(`RateLimit-Policy: "a";q=0;w=5`, `RateLimit: "a";r=0`), advice{remaining: 0, quota: true, inVain: true}},
		{"draft 7", header("RateLimit: limit=100, remaining=50, reset=5", "RateLimit-Policy: 100;w=10"), quota(100, 10*time.Second, 50, 5*time.Second)},
		{
			"draft 7: several policies", header("RateLimit: limit=1000, remaining=7, reset=13", "RateLimit-Policy: 10;w=1, 1000;w=86400"),
			quota(1000, 24*time.Hour, 7, 13*time.Second),
		},
		{
			"draft 7: two lines", header("RateLimit: limit=10, remaining=0, reset=60", "RateLimit: limit=10, remaining=5, reset=1", "RateLimit-Policy: 10;w=60"),
			quota(10, time.Minute, 0, time.Minute),
		},
		{"draft 3", header("RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 7", "RateLimit-Reset: 13"), quota(100, time.Minute, 7, 13*time.Second)},
		{
			"draft 3: several policies", header("RateLimit-Limit: 1000, 10;w=1, 1000;w=86400", "RateLimit-Remaining: 7", "RateLimit-Reset: 13"),
			quota(1000, 24*time.Hour, 7, 13*time.Second),
		},
		{"draft 6", header("RateLimit-Limit: 10", "RateLimit-Policy: 10;w=1, 1000;w=86400", "RateLimit-Remaining: 7", "RateLimit-Reset: 1"), quota(10, time.Second, 7, time.Second)},

		{"delta", header("X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 13"), advice{remaining: 0, reset: 13 * time.Second, hasReset: true, quota: true}},
		{"of Envoy", header(`X-RateLimit-Limit: 3, 3;w=60;name="k"`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 13"), quota(3, time.Minute, 0, 13*time.Second)},
		{"epoch", header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+unix(13*time.Second)), advice{remaining: 0, reset: 13 * time.Second, hasReset: true, quota: true}},
		{"epoch in ms", header("X-RateLimit-Reset: " + unix(13*time.Second) + "500"), advice{remaining: -1, reset: 13500 * time.Millisecond, hasReset: true, quota: true}},
		{"epoch in the past", header("X-RateLimit-Reset: " + unix(-time.Hour)), advice{remaining: -1, hasReset: true, quota: true}},
		{
			"epoch by the server's clock", header("Date: Thu, 05 Nov 2026 13:00:00 GMT", "X-RateLimit-Reset: "+unix(time.Hour+2*time.Second)),
			advice{remaining: -1, reset: 2 * time.Second, hasReset: true, quota: true},
		},
		{"the longest delta", header("X-RateLimit-Reset: 999999999"), advice{remaining: -1, reset: longest, hasReset: true, quota: true}},
		{"another spelling", header("X-Rate-Limit-Remaining: 1", "X-Rate-Limit-Reset: 2"), advice{remaining: 1, reset: 2 * time.Second, hasReset: true, quota: true}},
		{"twice", header("X-RateLimit-Remaining: 3", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 2", "X-RateLimit-Reset: 4"), advice{remaining: 1, reset: 4 * time.Second, hasReset: true, quota: true}},
		{
			"the new field before the older ones", header(`RateLimit: "a";r=1;t=5`, "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 2"),
			advice{remaining: 1, reset: 5 * time.Second, hasReset: true, quota: true},
		},
		{"a date as reset", header("X-RateLimit-Reset: Thu, 05 Nov 2026 13:00:00 GMT"), advice{remaining: -1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := readAdvice(test.h, now); got != test.want {
				t.Errorf("%v:\ngot  %+v\nwant %+v", test.h, got, test.want)
			}
		})
	}
}

func after(wait time.Duration) advice {
	return advice{retryAfter: wait, hasRetryAfter: true, remaining: -1}
}

func quota(limit int64, window time.Duration, remaining int64, reset time.Duration) advice {
	return advice{limit: limit, window: window, remaining: remaining, reset: reset, hasReset: true, quota: true}
}

// TestRetryAfterPrecedes: the draft gives Retry-After precedence over a reset.
func TestRetryAfterPrecedes(t *testing.T) {
	a := readAdvice(header("Retry-After: 5", `RateLimit: "a";r=0;t=9`), now)
	if wait, ok := a.wait(); wait != 5*time.Second || !ok {
		t.Errorf("got %v, %v, want 5s", wait, ok)
	}
}

// TestAdviceIsRead: whatever valid numbers a server writes in any style, they are read back.
func TestAdviceIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 1e6).Draw(t, "limit")
		window := rapid.Int64Range(1, 1e6).Draw(t, "window")
		remaining := rapid.Int64Range(0, limit).Draw(t, "remaining")
		reset := rapid.Int64Range(0, window).Draw(t, "reset")
		want := quota(limit, seconds(window), remaining, seconds(reset))
		n := func(n int64) string { return strconv.FormatInt(n, 10) }
		policy := n(limit) + ", " + n(limit) + ";w=" + n(window)
		for style, h := range map[string]http.Header{
			"ratelimit":         header(`RateLimit-Policy: "k";q=`+n(limit)+";w="+n(window), `RateLimit: "k";r=`+n(remaining)+";t="+n(reset)),
			"draft03":           header("RateLimit-Limit: "+policy, "RateLimit-Remaining: "+n(remaining), "RateLimit-Reset: "+n(reset)),
			"x-ratelimit":       header("X-RateLimit-Limit: "+policy, "X-RateLimit-Remaining: "+n(remaining), "X-RateLimit-Reset: "+n(reset)),
			"x-ratelimit-epoch": header("X-RateLimit-Limit: "+policy, "X-RateLimit-Remaining: "+n(remaining), "X-RateLimit-Reset: "+n(now.Unix()+reset)),
		} {
			if got := readAdvice(h, now); got != want {
				t.Errorf("%s: %v:\ngot  %+v\nwant %+v", style, h, got, want)
			}
		}
	})
}

// FuzzReadAdvice: no field makes a panic or a value out of bounds.
func FuzzReadAdvice(f *testing.F) {
	for _, s := range []string{
		"13", "-1", "1e9", "NaN", "1000000000000000000", "1762344013", "1762344013500", "Thu, 05 Nov 2026 12:00:30 GMT",
		`"per-key";r=99;t=60`, `"a";q=100;w=60, "b";q=1;w=1`, "limit=100, remaining=50, reset=5", "100, 100;w=60", `"\";r=1`, `;;,,="`,
	} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		h := make(http.Header)
		for _, name := range []string{
			"Retry-After", "Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
			"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Rate-Limit-Reset", "Date",
		} {
			h[name] = []string{a, b}
			a, b, c = b, c, a
		}
		got := readAdvice(h, now)
		if wait, _ := got.wait(); wait < 0 || wait > longest || got.reset < 0 || got.reset > longest || got.window < 0 || got.window > longest {
			t.Errorf("%q: times out of bounds: %+v", h, got)
		}
		if got.remaining < -1 || got.remaining > maxNumber || got.limit < 0 || got.limit > maxNumber || got.window > 0 && got.limit == 0 {
			t.Errorf("%q: numbers out of bounds: %+v", h, got)
		}
		l := &lane{turn: make(chan struct{}, 1), longest: time.Minute}
		passed, _, _ := l.next()
		l.learn(got, passed, true, got.retryAfter, http.StatusTooManyRequests)
		if l.spacing < 0 || l.spacing > time.Minute || l.catchUp < 0 {
			t.Errorf("%q: spacing %v, %v", h, l.spacing, l.catchUp)
		}
	})
}
