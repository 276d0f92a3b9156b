package memstore

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestTouch reads logs, some of which do not exist, and changes nothing.
func TestTouch(t *testing.T) {
	s := New(Options{Clock: func() time.Duration { return time.Hour }, SweepInterval: -1})
	defer s.Close()
	var checks []*window.Check
	for i := range 3 * touchAtOnce {
		c := &window.Check{Key: fmt.Sprint("log ", i), Limit: window.Limit{Hits: 100, Window: time.Minute}, Cost: uint64(1 + i%3)}
		checks = append(checks, c)
		for range i % 40 {
			if _, err := s.Take(t.Context(), window.MayWait, []window.Check{*c}, make([]window.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	save := func() []byte {
		var b bytes.Buffer
		for _, c := range checks {
			readings, err := s.Read(t.Context(), []window.LogID{c.Log()})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%+v\n", readings)
		}
		return b.Bytes()
	}
	before, stats := save(), s.Stats()
	for _, n := range []int{0, 1, touchAtOnce, touchAtOnce + 1, len(checks)} {
		s.Touch(checks[:n])
	}
	if after := save(); !bytes.Equal(before, after) || s.Stats() != stats {
		t.Errorf("the logs were\n%s, and are\n%s", before, after)
	}
}
