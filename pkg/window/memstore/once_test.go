package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

func TestOnce(t *testing.T) {
	policytest.RunOnce(t, windowtest.Options{Steps: 60_000, ShortWindows: true}, func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		s := memstore.New(memstore.Options{
			Clock:         func() time.Duration { return time.Duration(now.Load()) },
			SweepInterval: -1, // the clock is set back at will
		})
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{Store: s, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
	})
}
