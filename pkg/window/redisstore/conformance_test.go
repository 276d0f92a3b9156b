package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client as the package comment asks for.
func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// epoch makes the times of a test as large as real ones, in the year 2025.
const epoch = 1_750_000_000 * time.Second

// setClock sets the key that a store of NewWithClock reads.
func setClock(t testing.TB, c *redis.Client, key string, now time.Duration) {
	t.Helper()
	if err := c.Set(t.Context(), key, (epoch + now).Microseconds(), 0).Err(); err != nil {
		t.Fatalf("setting the clock: %v", err)
	}
}

// harnesses returns a function that opens harnesses. Each has its own keys and clock on one server.
func harnesses(t *testing.T) func(*testing.T) windowtest.Harness {
	t.Helper()
	client := newClient(t, servers.Redis(t))
	n := 0
	return func(t *testing.T) windowtest.Harness {
		n++
		clockKey := fmt.Sprintf("clock%d", n)
		return windowtest.Harness{
			Store:  redisstore.NewWithClock(t, client, redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}, clockKey),
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	}
}

func TestContract(t *testing.T) {
	open := harnesses(t)
	policytest.Run(t, windowtest.Options{Steps: 15_000}, open)
	windowtest.Run(t, windowtest.Options{Steps: 15_000}, open)
}
