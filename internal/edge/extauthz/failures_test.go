package extauthz

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// asking is a source that knows the key late-key. It counts the look-ups, and knows nothing from
// memory.
type asking struct{ asked int }

func (a *asking) Resolve(_ context.Context, k tier.Key, wait time.Duration) (tier.Answer, bool) {
	if wait < 0 {
		return tier.Answer{}, false
	}
	a.asked++
	if k.Plain == "late-key" {
		return tier.Answer{Subject: &tier.Subject{ID: "late"}}, true
	}
	return tier.Answer{}, true
}

// TestGuesses sends unknown keys of one address: after 20 in a minute it gets 429 without a look-up,
// while its known keys pass, and other addresses get 401.
func TestGuesses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, source := range map[string]*asking{"a directory": nil, "a source": {}} {
		s := newService(t, nil, func(o *Options) {
			o.MaxUnknown, o.IPv6Prefix, o.Wait = 20, 64, time.Second
			if source != nil {
				o.Subjects, o.PlainKeys = source, true
			}
		})
		s.opts.Address = settings.AddressForwardedFor // absent in calls of Check
		s.failures.now = func() time.Time { return now }
		check := func(from, key string, want int32) {
			t.Helper()
			in := ask("/", nil, "x-api-key: "+key)
			in.Attributes.Source.Address.GetSocketAddress().Address = from
			out := s.check(t, in)
			got := int32(http.StatusOK)
			if d := out.GetDeniedResponse(); d != nil {
				got = int32(d.GetStatus().GetCode())
			}
			if got != want {
				t.Fatalf("%s: the key %s from %s gets %d, want %d", name, key, from, got, want)
			}
			if want != http.StatusTooManyRequests {
				return
			}
			if h := out.GetDeniedResponse().GetHeaders()[0].GetHeader(); h.GetKey() != "retry-after" || h.GetValue() != "60" {
				t.Errorf("%s: the first header is %v, want a retry-after of 60", name, h)
			}
		}
		for i := range 20 {
			check(fmt.Sprint("2001:db8::", i), fmt.Sprint("guess-", i), http.StatusUnauthorized)
		}
		for i := range 100 {
			check(fmt.Sprint("2001:db8::", i), fmt.Sprint("guess-", 20+i), http.StatusTooManyRequests)
		}
		check("2001:db8:0:1::1", "guess", http.StatusUnauthorized)
		check("192.0.2.1", "guess", http.StatusUnauthorized)
		if source == nil {
			check("2001:db8::1", "hobby-key", http.StatusOK)
		} else if source.asked != 22 {
			t.Errorf("the source was asked %d times, want 22", source.asked)
		}
		// A customer behind the address is locked out for one request, while another client guesses.
		if source != nil {
			check("2001:db8::1", "late-key", http.StatusTooManyRequests)
			check("2001:db8::2", "guess-1000", http.StatusTooManyRequests)
			check("2001:db8::1", "late-key", http.StatusOK)
		}
		check("2001:db8::2", "guess-119", http.StatusTooManyRequests)
		// The same over HTTP, for a client behind the proxy.
		w := s.get(t, "/authz", "X-Original-URI: /", "X-Api-Key: guess", "X-Forwarded-For: [2001:db8::7]")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: /authz is %d with Retry-After %q, want 429 and 60", name, w.Code, w.Header().Get("Retry-After"))
		}
		now = now.Add(time.Minute + time.Second)
		check("2001:db8::1", "guess", http.StatusUnauthorized)
		// A client that sends one revoked key again and again does not guess.
		for range 30 {
			check("192.0.2.9", "revoked", http.StatusUnauthorized)
		}
	}
}

// TestManyGuessers: the addresses that are kept have a bound.
func TestManyGuessers(t *testing.T) {
	s := newService(t, nil, func(o *Options) { o.MaxUnknown = 20 })
	for i := range maxAddresses + 10 {
		c := new(call)
		c.in.peer = fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		c.keys.fingerprint = c.in.peer
		s.fail(c)
	}
	if n := len(s.failures.addresses); n != maxAddresses {
		t.Errorf("%d addresses are kept, want %d", n, maxAddresses)
	}
}
