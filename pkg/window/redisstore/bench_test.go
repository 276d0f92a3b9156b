package redisstore_test

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkTake measures one request to one Redis on this machine: groups of one
// and three checks, allowed and denied, by one caller and by many, on a thousand
// keys.
func BenchmarkTake(b *testing.B) {
	s := redisstore.New(newClient(b, servers.Redis(b)), redisstore.Options{})
	windowtest.BenchmarkTake(b, s, 1000, 16, window.Limit{Hits: window.Unlimited - 1, Window: 10 * time.Second})
}
