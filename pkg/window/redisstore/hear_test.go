package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// nowhere is a client without a server.
type nowhere struct{}

func (nowhere) Process(context.Context, redis.Cmder) error { return errors.New("no server") }

// TestHear tells messages apart, with and without a prefix. A version that knows only
// refunds takes the message of a removal for no log, and hears the second one.
func TestHear(t *testing.T) {
	id := window.LogID{Key: "{id.a}:r reset", Window: 10 * time.Second}
	for _, prefix := range []string{"", "p:"} {
		s := New(nowhere{}, Options{Prefix: prefix})
		t.Cleanup(func() { s.Close() })
		var got []string
		h := Heard{
			Refunded: func(l window.LogID) { got = append(got, "refunded "+l.Key) },
			Removed:  func(l window.LogID) { got = append(got, "removed "+l.Key) },
		}
		key := KeyName(prefix, id)
		for _, message := range []string{key + resetMark, key, "x", resetMark, "", key + resetMark + resetMark} {
			s.hear(message, h)
		}
		if want := []string{"removed " + id.Key, "refunded " + id.Key}; !slices.Equal(got, want) {
			t.Errorf("prefix %q: got %q, want %q", prefix, got, want)
		}
		if older, ok := s.logOf(key + resetMark); ok {
			t.Errorf("prefix %q: an older version takes the message for %v", prefix, older)
		}
	}
}
