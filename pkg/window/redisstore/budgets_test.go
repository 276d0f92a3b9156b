package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/servers"
)

func TestBudgets(t *testing.T) {
	addr := servers.Redis(t)
	client, other := newClient(t, addr), newClient(t, addr)
	n := 0 // every harness has its own keys and clock on the one server
	policytest.RunBudgets(t, windowtest.Options{Steps: 15_000}, func(t *testing.T) policytest.InFlightHarness {
		n++
		clockKey, o := fmt.Sprintf("clock%d", n), redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		return policytest.InFlightHarness{
			Stores: []window.Store{redisstore.NewWithClock(t, client, o, clockKey), redisstore.NewWithClock(t, other, o, clockKey)},
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	})
}

// TestBudgetsCluster runs what needs no clock on a cluster, where streams and logs are on several
// servers.
func TestBudgetsCluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	client, other := newClusterClient(t, cluster), newClusterClient(t, cluster)
	n := 0
	policytest.RunBudgets(t, windowtest.Options{RealClock: true}, func(t *testing.T) policytest.InFlightHarness {
		n++
		o := redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		stores := []window.Store{redisstore.New(client, o), redisstore.New(other, o)}
		for _, s := range stores {
			t.Cleanup(func() { s.Close() })
		}
		return policytest.InFlightHarness{Stores: stores}
	})
}
