package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	open := func(t *testing.T) windowtest.Harness {
		var now atomic.Int64
		s := memstore.New(memstore.Options{
			Clock: func() time.Duration { return time.Duration(now.Load()) },
			// The clock is set back at will: a swept log would have held it.
			SweepInterval: -1,
		})
		t.Cleanup(func() { s.Close() })
		return windowtest.Harness{Store: s, SetNow: func(d time.Duration) { now.Store(int64(d)) }}
	}
	o := windowtest.Options{Steps: 30_000, ShortWindows: true}
	policytest.Run(t, o, open)
	windowtest.Run(t, o, open)
}
