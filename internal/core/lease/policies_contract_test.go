package lease_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/core/lease"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

// TestContractOfPolicies runs the suite of the policies that count hits.
func TestContractOfPolicies(t *testing.T) { runContract(t, 20_000, policytest.Run) }

// TestContractInFlight runs the suite of requests in flight through two processes that share a
// store.
func TestContractInFlight(t *testing.T) {
	policytest.RunInFlight(t, windowtest.Options{Steps: 10_000}, func(t *testing.T) policytest.InFlightHarness {
		s := newShared(t)
		return policytest.InFlightHarness{
			Stores: []window.Store{s.process(t, lease.Options{}), s.process(t, lease.Options{})},
			SetNow: s.setNow,
		}
	})
}
