package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slidegate/slidegate/pkg/window"
)

// A spend is the input of one call for the model of a log.
type spend struct {
	cost   uint64
	limit  uint64
	resets bool // it empties the log
	always bool // it counts also if it is denied
	refund bool // it gives the cost back
	stale  bool // its denial may be older, because a reset or a refund counts elsewhere within a second
}

// logModel is a log in which nothing expires. A call whose answer is unknown may have charged.
var logModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, output any) []any {
		used, in := state.(uint64), input.(spend)
		room := in.cost <= in.limit-min(used, in.limit) && used < in.limit
		switch got := output.(answer); {
		case in.refund && got == failed:
			return []any{used, used - min(used, in.cost)}
		case in.refund:
			return []any{used - min(used, in.cost)}
		case in.always && (got == failed || (got == allowed) == room):
			after := min(used+in.cost, 2*in.limit) // the rest is lost
			if got == failed {
				return []any{used, after}
			}
			return []any{after}
		case in.always:
			return nil
		case in.resets && got == failed:
			return []any{used, uint64(0)}
		case in.resets:
			return []any{uint64(0)}
		case got == allowed && room:
			return []any{used + in.cost}
		case got == denied && (!room || in.stale), got == failed && !room:
			return []any{used}
		case got == failed:
			return []any{used, used + in.cost}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// judgeHistory checks that the calls of one key are those of one log, decided one after the other: each at
// a moment between its begin and its answer. A call that got no answer was decided before the caller
// left, or never.
func (w *world) judgeHistory(k *key, all []*op) {
	plain := k.Limit.Policy == window.Sliding && k.Limit.Window == total && k.Lease.Length == 0 && !k.Once && k.Hold == 0 && !k.joined(w)
	if !plain || len(w.historyOf(k).losses) > 0 || len(all) == 0 {
		return
	}
	var history []porcupine.Operation
	for i, o := range all {
		got := o.answer
		if !o.byStore[0] {
			got = failed
		}
		history = append(history, porcupine.Operation{
			ClientId: i, Input: spend{cost: o.cost, limit: cmp.Or(o.limit, k.Limit.Hits), stale: k.Resets || k.Refunds, always: k.Always, refund: o.refund}, Output: got, Call: int64(o.begin), Return: int64(o.end),
		})
	}
	for _, r := range k.resets {
		got := allowed
		if r.failed {
			got = failed
		}
		history = append(history, porcupine.Operation{ClientId: len(history), Input: spend{resets: true}, Output: got, Call: int64(r.begun), Return: int64(r.at)})
	}
	const patience = 5 * time.Second // of the machine, for one history
	if porcupine.CheckOperationsTimeout(logModel, history, patience) == porcupine.Illegal {
		w.breaks(promiseNeverMore, "%s: no order of its %d calls is that of one log", k.name, len(all))
	}
}

// joined reports whether requests of other keys also meet the limit of k, or those of k that of another key.
func (k *key) joined(w *world) bool {
	return k.Joins >= 0 || slices.ContainsFunc(w.keys, func(other *key) bool { return other.Joins == k.Number })
}
