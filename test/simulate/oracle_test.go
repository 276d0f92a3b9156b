package simulate

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestAResetInBetween: a reset empties a log at some moment between its begin and its end. What passes before and after
// that, and meanwhile, exceeds no limit. What passes before its begin, or after its end, may.
func TestAResetInBetween(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name   string
		passes []time.Duration // requests
		broken bool
	}{
		{"before, and meanwhile", []time.Duration{1 * second, 2 * second, 4 * second, 5 * second}, false},
		{"meanwhile, and after", []time.Duration{4 * second, 5 * second, 7 * second, 8 * second}, false},
		{"before", []time.Duration{1 * second, 2 * second, 2500 * time.Millisecond}, true},
		{"after", []time.Duration{7 * second, 7500 * time.Millisecond, 8 * second}, true},
	} {
		w := &world{plan: &plan{Length: 10 * second, Instances: 1}}
		s := &server{w: w, clocks: []clockAt{{}}}
		k := newKey(&keySpec{Limit: window.Limit{Hits: 2, Window: total}, Joins: -1})
		k.owners = []owner{{server: s}}
		k.resets = []reset{{begun: 3 * second, at: 6 * second}}
		var all []*op
		for _, at := range tt.passes {
			all = append(all, &op{keys: []*key{k}, cost: 1, begin: at, end: at + time.Millisecond, answer: allowed, byStore: []bool{true}})
		}
		if w.judgeWindows(k, all); (len(w.broken) > 0) != tt.broken {
			t.Errorf("%s: %q", tt.name, w.broken)
		}
	}
}
