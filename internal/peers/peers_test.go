package peers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/slidegate/slidegate/test/servers"
)

const name = "slidegate-peers.default.svc.cluster.local"

// addresses returns n addresses that begin with a prefix, as fd00::1.
func addresses(prefix string, n int) []netip.Addr {
	var all []netip.Addr
	for i := range n {
		text := fmt.Sprintf("%s%x", prefix, i+1)
		if !strings.Contains(prefix, ":") {
			text = fmt.Sprintf("%s%d.%d", prefix, i/250, i%250+1)
		}
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// TestCount asks a DNS server.
func TestCount(t *testing.T) {
	v4, v6 := addresses("10.1.", 3), addresses("fd00::", 3)
	for _, tt := range []struct {
		name string
		has  []netip.Addr
		code map[dnsmessage.Type]dnsmessage.RCode
		want int    // 0: no answer
		fail string // is in the error
	}{
		{"one", v4[:1], nil, 1, ""},
		{"three", v4, nil, 3, ""},
		{"IPv6", v6, nil, 3, ""},
		{"dual stack counts each instance once", append(v4[:3:3], v6...), nil, 3, ""},
		{"one family is behind the other", append(v4[:3:3], v6[:2]...), nil, 3, ""},
		{"an address twice", append(v4[:3:3], v4...), nil, 3, ""},
		{"more than a packet has room for", addresses("10.2.", 1000), nil, 1000, ""},
		{"no addresses", nil, nil, 0, "no such host"},
		{"no answer for IPv4 of a dual stack", append(v4[:3:3], v6...), map[dnsmessage.Type]dnsmessage.RCode{dnsmessage.TypeA: dnsmessage.RCodeServerFailure}, 3, ""},
		{"no answer for IPv6, which is not used", v4, map[dnsmessage.Type]dnsmessage.RCode{dnsmessage.TypeAAAA: dnsmessage.RCodeServerFailure}, 3, ""},
		// The resolver asks for both families at once and returns the error that came last: that the server fails, or
		// that there is no address.
		{"no answer for IPv4, which is used", v4, map[dnsmessage.Type]dnsmessage.RCode{dnsmessage.TypeA: dnsmessage.RCodeServerFailure}, 0, "lookup " + name},
		{"refused", v4, map[dnsmessage.Type]dnsmessage.RCode{dnsmessage.TypeA: dnsmessage.RCodeRefused, dnsmessage.TypeAAAA: dnsmessage.RCodeRefused}, 0, "server misbehaving"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := servers.StartDNS(t)
			server.Set(name, tt.has...)
			for of, code := range tt.code {
				server.Refuse(of, code)
			}
			c := New(Options{Name: name + ".", Least: 2, Interval: time.Second, Resolver: server.Resolver()})
			c.Count(t.Context())
			switch f := c.Failure(); {
			case tt.want == 0:
				if f == nil || !strings.Contains(f.Err.Error(), tt.fail) || c.Number() != 2 || c.Errors() != 1 {
					t.Errorf("got %d, failure %v, %d errors; want the least number and the error %q", c.Number(), f, c.Errors(), tt.fail)
				}
			case f != nil || c.Number() != max(tt.want, 2) || c.Errors() != 0:
				t.Errorf("got %d, failure %+v, want %d", c.Number(), f, tt.want)
			}
			if got, want := server.OverTCP() > 0, len(tt.has) > 100; got != want {
				t.Errorf("answers over TCP: %t, want %t", got, want)
			}
		})
	}
}

// TestCountIsBounded asks a server that does not answer.
func TestCountIsBounded(t *testing.T) {
	server := servers.StartDNS(t)
	server.Silence(true)
	c := New(Options{Name: name, Interval: time.Second, Resolver: server.Resolver()})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if n, err := c.look(ctx); n != 0 || err == nil {
		t.Errorf("got %d, %v; want an error", n, err)
	}
	if c.Count(ctx); c.Errors() != 0 || c.Failure() != nil {
		t.Errorf("a lookup that the process gave up counts as a failure: %v", c.Failure())
	}
}

// TestNumber counts answers at explicit times.
func TestNumber(t *testing.T) {
	away := errors.New("away")
	type step struct {
		at     int // seconds
		answer int // 0: an error
		keep   bool
		want   int
	}
	for _, tt := range []struct {
		name     string
		least    int
		interval time.Duration
		steps    []step
	}{
		{"a larger answer counts at once", 0, 5 * time.Second, []step{{0, 1, false, 1}, {5, 2, false, 2}, {10, 7, false, 7}}},
		{"a smaller one after a minute of smaller ones", 0, 5 * time.Second, []step{
			{0, 4, false, 4}, {5, 2, false, 4}, {30, 3, false, 4}, {55, 2, false, 4}, {59, 2, false, 4}, {60, 2, false, 3}, {89, 2, false, 3}, {90, 2, false, 2},
		}},
		{"a rolling update takes one away each time", 0, 5 * time.Second, []step{
			{0, 4, false, 4}, {5, 3, false, 4}, {10, 4, false, 4}, {15, 3, false, 4}, {20, 5, false, 5}, {25, 4, false, 5}, {79, 4, false, 5}, {80, 4, false, 4},
		}},
		{"the least number", 3, 5 * time.Second, []step{{0, 1, false, 3}, {5, 4, false, 4}, {65, 1, false, 3}}},
		{"no answer from the beginning", 3, 5 * time.Second, []step{{0, 0, false, 3}, {5, 0, false, 3}, {10, 5, false, 5}}},
		{"no answer keeps the number, and a minute more", 0, 5 * time.Second, []step{
			{0, 4, false, 4}, {5, 0, false, 4}, {500, 0, false, 4}, {505, 1, false, 4}, {555, 1, false, 4}, {560, 1, false, 1},
		}},
		{"the number is kept, and a minute more", 0, 5 * time.Second, []step{
			{0, 4, true, 4}, {5, 2, true, 4}, {500, 2, true, 4}, {505, 6, true, 6}, {510, 2, false, 6}, {564, 2, false, 6}, {565, 2, false, 2},
		}},
		{"rare answers: three in a row", 0, time.Minute, []step{{0, 4, false, 4}, {60, 2, false, 4}, {120, 2, false, 4}, {180, 2, false, 2}}},
		{"the largest number", 0, 5 * time.Second, []step{{0, Most + 1, false, Most}}},
		{"a least number that is too large", Most + 1, 5 * time.Second, []step{{0, 1, false, Most}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var keep bool
			var changes []string
			c := New(Options{Name: name, Least: tt.least, Interval: tt.interval, Keep: func() bool { return keep }, Changed: func(before, now int) {
				changes = append(changes, fmt.Sprint(before, now))
			}})
			start, wantChanges := time.Now(), []string(nil)
			for _, s := range tt.steps {
				before := c.Number()
				keep = s.keep
				err := error(nil)
				if s.answer == 0 {
					err = away
				}
				c.note(start.Add(time.Duration(s.at)*time.Second), s.answer, err)
				if got := c.Number(); got != s.want {
					t.Errorf("at %d s: got %d, want %d", s.at, got, s.want)
				}
				if s.want != before {
					wantChanges = append(wantChanges, fmt.Sprint(before, s.want))
				}
			}
			if fmt.Sprint(changes) != fmt.Sprint(wantChanges) {
				t.Errorf("got the changes %v, want %v", changes, wantChanges)
			}
		})
	}
}

// TestFailures: the first error and the first answer after it are reported, and the state says
// since when there is no answer.
func TestFailures(t *testing.T) {
	var reports []string
	c := New(Options{Name: name, Interval: time.Second, Answers: func(err error) { reports = append(reports, fmt.Sprint(err)) }})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.note(at, 3, nil)
	if got, want := c.String(), "3 instances by "+name; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, err := range []error{errors.New("first"), errors.New("second")} {
		c.note(at.Add(time.Duration(i)*time.Second), 0, err)
	}
	if got, want := c.String(), "3 instances by "+name+"; the last known number: no answer since 2026-01-02T03:04:05Z (second)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.note(at, 3, nil)
	c.note(at, 3, nil)
	if got, want := fmt.Sprint(reports), "[first <nil>]"; got != want {
		t.Errorf("got the reports %s, want %s", got, want)
	}
	if c.Errors() != 2 {
		t.Errorf("got %d errors, want 2", c.Errors())
	}
}

// TestRun counts in each interval, and ends with its context.
func TestRun(t *testing.T) {
	server := servers.StartDNS(t)
	server.Set(name, addresses("10.1.", 2)...)
	changed := make(chan int, 1)
	c := New(Options{Name: name, Interval: time.Millisecond, Resolver: server.Resolver(), Changed: func(_, now int) { changed <- now }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for _, n := range []int{2, 5} {
		server.Set(name, addresses("10.1.", n)...)
		if got := <-changed; got != n {
			t.Errorf("got %d, want %d", got, n)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
