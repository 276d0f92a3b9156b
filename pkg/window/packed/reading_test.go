package packed_test

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

func init() {
	packed.AskReading = func(log []byte, clock int64, c *window.Check) (window.Decision, uint64) {
		r := inspect.NewReading(c.Log(), time.Duration(clock)*time.Microsecond, log)
		r.History(3)
		return r.Ask(c.Limit), r.Used(c.Limit)
	}
}
