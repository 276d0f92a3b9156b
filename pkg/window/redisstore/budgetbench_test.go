package redisstore_test

import (
	"testing"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkBudget measures a plain hit, and a reservation with its settlement, each by one caller.
func BenchmarkBudget(b *testing.B) {
	s := redisstore.New(newClient(b, servers.Redis(b)), redisstore.Options{})
	defer s.Close()
	policytest.BenchmarkBudget(b, s, 1000)
}
