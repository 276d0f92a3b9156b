package policytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/oracle"
)

// oracleStore makes a store of the oracle, so that the suite's own expectations
// are checked against it.
type oracleStore struct {
	mu     sync.Mutex
	clock  time.Duration
	oracle *oracle.Oracle
}

func (s *oracleStore) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("oracle: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return true, fmt.Errorf("oracle: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answers, err := s.oracle.Decide(s.clock.Truncate(time.Microsecond), checks)
	copy(decisions, answers)
	return true, err
}

func (s *oracleStore) Close() error { return nil }

func (s *oracleStore) setNow(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = now
}

func TestOracle(t *testing.T) {
	windowtest.Run(t, windowtest.Options{Steps: 2000, ShortWindows: true}, func(*testing.T) windowtest.Harness {
		s := &oracleStore{oracle: oracle.New(0)}
		return windowtest.Harness{Store: s, SetNow: s.setNow}
	})
	Run(t, windowtest.Options{Steps: 2000, ShortWindows: true}, func(*testing.T) windowtest.Harness {
		s := &oracleStore{oracle: oracle.New(1_750_000_000 * second)}
		return windowtest.Harness{Store: s, SetNow: s.setNow, Epoch: s.oracle.Epoch}
	})
}
