package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

func TestOnce(t *testing.T) {
	client := newClient(t, servers.Redis(t))
	n := 0 // every harness has its own keys and clock on the one server
	windowtest.RunOnce(t, windowtest.Options{Steps: 15_000}, func(t *testing.T) windowtest.Harness {
		n++
		clockKey := fmt.Sprintf("clock%d", n)
		return windowtest.Harness{
			Store:  redisstore.NewWithClock(t, client, redisstore.Options{Prefix: fmt.Sprintf("test%d:", n)}, clockKey),
			SetNow: func(now time.Duration) { setClock(t, client, clockKey, now) },
			Epoch:  epoch,
		}
	})
}
