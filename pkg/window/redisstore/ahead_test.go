package redisstore

import (
	"testing"
	"time"
)

// TestExpiryOfWhatIsAhead proves that a key outlives what it holds ahead of the
// clock.
func TestExpiryOfWhatIsAhead(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	got, want := r.take(start, ten("k", 5, 1), 5*time.Second).ttl, 18*time.Second // 5, the window, and a quarter of it
	if got > want || got < want-time.Since(began)-time.Millisecond {
		t.Errorf("life: got %v, want %v", got, want)
	}
	// It need not be set again for what does not last longer.
	if err := r.client.PExpire(t.Context(), "k:10000000", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if got := r.take(start+3*second, ten("k", 5, 1), 0).ttl; got < 50*time.Minute {
		t.Errorf("life after another charge: %v, want it left alone", got)
	}
}
