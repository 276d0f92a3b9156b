package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// nowhere is a client without a server.
type nowhere struct{}

func (nowhere) Process(context.Context, redis.Cmder) error { return errors.New("no server") }

// TestDoubts has what errors tell of when a call may have been charged.
func TestDoubts(t *testing.T) {
	const begun, deadline = 2_000_000, 17_000_000
	certain := Doubt{Never, Never}
	for _, tt := range []struct {
		name     string
		class    Class
		deadline int64
		clock    bool // of the server is known
		want     Doubt
		known    bool
	}{
		{"no answer", ClassTimeout, deadline, true, Doubt{Since: 999, Until: 16_017}, true},
		{"the connection ended", ClassClosed, deadline, true, Doubt{Since: 999, Until: 16_017}, true},
		{"nothing was sent", ClassTimeout, deadline, false, certain, true},
		{"refused as late", ClassLate, deadline, true, certain, true},
		{"not asked", ClassOpen, deadline, true, Doubt{}, false},
		{"the caller left", ClassGone, deadline, true, Doubt{}, false},
		{"no answer, without a deadline", ClassTimeout, 0, true, Doubt{}, false},
		{"the connection ended, without a deadline", ClassClosed, 0, false, Doubt{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(nowhere{}, Options{})
			t.Cleanup(func() { s.Close() })
			if tt.clock {
				// It was at 1,000 µs when the local one was at 2,000 µs.
				s.single.clock.learn(1000, begun, begun+1)
			}
			cause := &Error{Class: tt.class, Err: errors.New("cause")}
			got, known := DoubtOf(s.single.inDoubt(cause, begun, tt.deadline))
			if known != tt.known || got != tt.want {
				t.Errorf("%+v, %t, want %+v, %t", got, known, tt.want, tt.known)
			}
			if _, noted := DoubtOf(cause); noted {
				t.Error("the error of other calls has changed")
			}
		})
	}
}
