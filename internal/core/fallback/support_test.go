package fallback_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	second = time.Second
	micro  = time.Microsecond
	win    = 10 * second
)

func take(tb testing.TB, s window.Store, checks ...window.Check) []window.Decision {
	tb.Helper()
	return windowtest.Take(tb, s, checks)
}

func ask(key string, hits, cost uint64) window.Check {
	return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: win}, Cost: cost}
}

func in(m window.Mode, c window.Check) window.Check { c.Mode = m; return c }

func answers(d ...window.Decision) []window.Decision { return d }

func one(c window.Check) []window.Check { return []window.Check{c} }

// denied returns a denial by a log in which nothing remains.
func denied(retry, unit, reset time.Duration) window.Decision {
	return window.Decision{RetryAfter: retry, UnitAfter: unit, ResetAfter: reset}
}

// flying returns a check of a stream under a limit of so many requests in flight.
func flying(stream window.StreamID, most uint64) window.Check {
	return window.Check{Key: "k", Cost: 1, Stream: stream, Limit: window.Limit{Hits: most, Window: time.Minute, Policy: window.InFlight}}
}
