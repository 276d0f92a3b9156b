package memstore_test

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// BenchmarkTake measures one request on the store's own clock: groups of one and
// three checks, allowed and denied, by one caller and by many, on a hundred
// thousand keys.
func BenchmarkTake(b *testing.B) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	windowtest.BenchmarkTake(b, s, 100_000, 1, window.Limit{Hits: 1 << 30, Window: time.Second})
}
