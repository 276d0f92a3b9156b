package local_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/local"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// TestContractOfPolicies runs the suite of the policies that count hits through a process. Its
// answers equal those of the store to the microsecond.
func TestContractOfPolicies(t *testing.T) {
	var answered uint64
	windowtest.RunPolicies(t, windowtest.Options{Steps: 20_000, ShortWindows: true}, func(t *testing.T) windowtest.Harness {
		s := newShared(t)
		p := s.process(t, local.Options{})
		t.Cleanup(func() { answered += p.Stats().Denials })
		return windowtest.Harness{Store: forgetful{p}, SetNow: s.setNow}
	})
	if answered == 0 {
		t.Error("the process denied nothing from memory, so nothing was proven")
	}
	t.Logf("%d denials without the store", answered)
}

// TestContractInFlight runs the suite of requests in flight through two processes that share a
// store.
func TestContractInFlight(t *testing.T) {
	windowtest.RunInFlight(t, windowtest.Options{Steps: 10_000}, func(t *testing.T) windowtest.InFlightHarness {
		s := newShared(t)
		return windowtest.InFlightHarness{
			Stores: []window.Store{s.process(t, local.Options{}), s.process(t, local.Options{})},
			SetNow: s.setNow,
		}
	})
}
