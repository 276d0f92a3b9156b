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

func TestInFlight(t *testing.T) {
	addr := servers.Redis(t)
	client, other := newClient(t, addr), newClient(t, addr)
	n := 0 // every harness has its own keys and clock on the one server
	policytest.RunInFlight(t, windowtest.Options{Steps: 15_000}, func(t *testing.T) policytest.InFlightHarness {
		n++
		clockKey, o := fmt.Sprintf("clock%d", n), redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		return policytest.InFlightHarness{
			Stores: []window.Store{redisstore.NewWithClock(t, client, o, clockKey), redisstore.NewWithClock(t, other, o, clockKey)},
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	})
}

// TestInFlightCluster runs what needs no clock on a cluster, where streams and logs are on
// several servers.
func TestInFlightCluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	client, other := newClusterClient(t, cluster), newClusterClient(t, cluster)
	n := 0
	policytest.RunInFlight(t, windowtest.Options{RealClock: true}, func(t *testing.T) policytest.InFlightHarness {
		n++
		o := redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}
		stores := []window.Store{redisstore.New(client, o), redisstore.New(other, o)}
		for _, s := range stores {
			t.Cleanup(func() { s.Close() })
		}
		return policytest.InFlightHarness{Stores: stores}
	})
}

// TestEndOfADamagedLog: an end removes a log whose header contradicts its holds, and the store reports it.
func TestEndOfADamagedLog(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	corrupt := 0
	s := redisstore.New(client, redisstore.Options{Corrupt: func(time.Duration) { corrupt++ }})
	defer s.Close()
	c := policytest.Holding(1, "{k}", 5, 1)
	take(t, s, c)
	const sum = 15 // its last byte
	key := redisstore.KeyName("", c.Log())
	if err := client.SetRange(t.Context(), key, sum, "\x07").Err(); err != nil {
		t.Fatal(err)
	}
	settled, err := s.End(t.Context(), window.Ending{Stream: 1})
	if err != nil || settled.Released || corrupt != 1 || client.Exists(t.Context(), key).Val() != 0 {
		t.Errorf("%+v, %v, %d corrupt values", settled, err, corrupt)
	}
}
