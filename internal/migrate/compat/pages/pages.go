// Package pages serves the debug pages of envoyproxy/ratelimit, in its form:
//
//	/stats         the command line, and the statistics of the memory
//	/rlconfig      a line for each rule, sorted
//	/debug/pprof/  profiles
//	any other      the list of these paths
//
// Every page is a GET that changes nothing. So the port may be open to a network, as the one of
// envoyproxy/ratelimit is. No page shows an API key.
package pages

import (
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// list is what envoyproxy/ratelimit answers to every unknown path.
const list = `/debug/pprof/: root of various pprof endpoints. hit for help.
/debug/pprof/profile: CPU profiling endpoint
/debug/pprof/trace: trace endpoint
/rlconfig: print out the currently loaded configuration for debugging
/stats: print out stats
`

// Handler returns the handler of the pages. rules returns the active rules, and reports whether
// the values of a key are API keys.
func Handler(rs func() (active *rules.Rules, hides func(key string) bool)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { write(w, list) })
	mux.HandleFunc("GET /stats", Stats)
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		write(w, strings.Join(Lines(rs()), ""))
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func write(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, text) // on an error the client has gone
}

// Stats answers with the variables that every Go program has, in the form of package expvar.
func Stats(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	expvar.Do(func(v expvar.KeyValue) { fmt.Fprintf(&b, "%s: %s\n", v.Key, v.Value) })
	write(w, b.String())
}

// Lines returns the lines of /rlconfig, sorted. A rule has a line for each limit and tier. A
// window that is no unit of envoyproxy/ratelimit has a unit_multiplier, or its length.
func Lines(rs *rules.Rules, hides func(key string) bool) []string {
	var lines []string
	for _, r := range rs.All() {
		key := fullKey(r, hides)
		lines = appendTerms(lines, key+": ", r, &r.Terms)
		for name, terms := range r.ByTier {
			lines = appendTerms(lines, key+": tier="+safetext.Text(name)+" ", r, &terms)
		}
	}
	slices.Sort(lines)
	return lines
}

func appendTerms(lines []string, begin string, r *rules.Rule, t *rules.Terms) []string {
	end := fmt.Sprintf(", shadow_mode: %t, quota_mode: %t\n", t.Observe >= 1, r.Quota)
	if t.Unlimited {
		return append(lines, begin+"unit=UNKNOWN requests_per_unit=0"+end)
	}
	for _, l := range t.Limits {
		lines = append(lines, fmt.Sprintf("%s%s requests_per_unit=%d%s", begin, window(l.Window), l.Hits, end))
	}
	return lines
}

// fullKey returns the name of a rule in envoyproxy/ratelimit: the domain and the levels, with
// dots between them. *** stands for an API key.
func fullKey(r *rules.Rule, hides func(key string) bool) string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for _, n := range r.Path {
		b.WriteString("." + n.Key)
		switch {
		case n.AnyValue:
		case hides(n.Key) && !n.Pattern:
			b.WriteString("_***")
		default:
			b.WriteString("_" + n.Value)
		}
	}
	return safetext.Text(b.String())
}

// window returns the unit of a window, and how many of them it has if it is not one.
func window(w time.Duration) string {
	switch unit, n := ratelimit.UnitOf(w); {
	case unit == 0:
		return "window=" + w.String()
	case n == 1:
		return "unit=" + unit.String()
	default:
		return fmt.Sprintf("unit=%v unit_multiplier=%d", unit, n)
	}
}
