package lease_test

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

// TestContractOnce runs the suite of charges with idempotency records.
func TestContractOnce(t *testing.T) { runContract(t, 20_000, policytest.RunOnce) }

// retried returns a check of an attempt.
func retried(id, hits uint64) window.Check {
	return window.Check{
		Key: "{t}k", Cost: 1, Limit: window.Limit{Hits: hits, Window: win},
		Once: window.Once{ID: id, For: time.Hour, Repeats: 2},
	}
}

// TestRepeatIsNotDeniedFromMemory: a process that remembers a denial asks the shared store about a
// request with a key. It may repeat a charge of another process.
func TestRepeatIsNotDeniedFromMemory(t *testing.T) {
	s := newShared(t)
	one, other := s.process(t, lease.Options{}), s.process(t, lease.Options{})
	plain := retried(0, 1)
	take(t, one, retried(1, 1))
	take(t, other, plain)
	calls := s.calls.Load()
	if d := take(t, other, plain)[0]; d.Allowed || s.calls.Load() != calls {
		t.Fatalf("without a key: got %+v after %d calls, want a denial from memory", d, s.calls.Load()-calls)
	}
	if d := take(t, other, retried(2, 1))[0]; d.Allowed || d.Remembered || s.calls.Load() != calls+1 {
		t.Errorf("a new key: got %+v after %d calls, want a denial by the store", d, s.calls.Load()-calls)
	}
	got := make([]window.Decision, 1)
	if decided, err := other.Take(t.Context(), window.NoWait, []window.Check{retried(1, 1)}, got); decided || err != nil {
		t.Errorf("without waiting: decided %v, error %v", decided, err)
	}
	if d := take(t, other, retried(1, 1))[0]; !d.Allowed || !d.Repeated {
		t.Errorf("a repeat: got %+v", d)
	}
	calls = s.calls.Load()
	if d := take(t, other, plain)[0]; d.Allowed || s.calls.Load() != calls {
		t.Errorf("after a repeat: got %+v, want a denial from memory", d)
	}
}

// TestRepeatSpendsNoLease: a request with a key is decided by the shared store while there is a
// lease, so its charge has an idempotency record.
func TestRepeatSpendsNoLease(t *testing.T) {
	s := newShared(t)
	p := s.process(t, lease.Options{})
	c := retried(1, 1000)
	c.Lease = window.Lease{Length: second}
	for range 10 {
		plain := c
		plain.Once = window.Once{}
		take(t, p, plain)
	}
	if d := take(t, p, c)[0]; d.Repeated {
		t.Errorf("the first: got %+v", d)
	}
	if d := take(t, p, c)[0]; !d.Repeated {
		t.Errorf("its repeat: got %+v", d)
	}
}
