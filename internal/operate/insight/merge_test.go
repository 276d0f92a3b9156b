package insight

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func answer[T any](from string, v T) Answer[T] { return Answer[T]{From: from, Value: &v} }

func TestMergeDenials(t *testing.T) {
	at := func(second int64, rule string) Denial {
		return Denial{ID: uint64(second), At: time.Unix(second, 0), Rule: rule}
	}
	all := []Answer[Denials]{
		answer("a", Denials{Denials: []Denial{at(5, "five"), at(1, "one")}, Seen: 2, Kept: 10, Sampled: 1, Instance: "host-a"}),
		{From: "b", Err: errors.New("no answer")},
		answer("c", Denials{Denials: []Denial{at(4, "four"), at(2, "two")}, Seen: 7, Kept: 10, Sampled: 3}),
	}
	got := MergeDenials(all, 3)
	var rows []string
	for _, d := range got.Denials {
		rows = append(rows, d.Rule+" of "+d.Instance)
	}
	if diff := cmp.Diff([]string{"five of a", "four of c", "two of c"}, rows); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
	if got.Seen != 9 || got.Kept != 20 || got.Sampled != 3 || got.Instance != "host-a" {
		t.Errorf("counts: %+v", got)
	}
	if text := got.Instances.String(); text != "from 2 of 3 instances; b did not answer" {
		t.Errorf("got %q", text)
	}
	parts := got.Split()
	if len(parts) != 3 || len(parts[0].Value.Denials) != 1 || len(parts[2].Value.Denials) != 2 || parts[1].Err.Error() != "no answer" {
		t.Errorf("split: %+v", parts)
	}
	if diff := cmp.Diff(got.Instances, MergeDenials(parts, 3).Instances); diff != "" {
		t.Errorf("instances after split and merge (-want +got):\n%s", diff)
	}
	// One instance does not name itself in each row.
	if one := MergeDenials(all[:1], 0); len(one.Denials) != 2 || one.Denials[0].Instance != "" || len(one.Split()[0].Value.Denials) != 2 || one.Instances.String() != "from 1 instance" {
		t.Errorf("one instance: %+v", one)
	}
}

func TestMergeStates(t *testing.T) {
	rate := func(rule string, points ...float64) RuleRate {
		return RuleRate{Domain: "d", Rule: rule, Decisions: points, Denials: points}
	}
	own := State{
		Instance: "own", Latency: Latency{P99: 1, StoreP99: 4}, Leases: Leases{Made: 1}, Store: Store{Degraded: 2},
		Problems: []Problem{{Level: "warning", Text: "of all"}, {Level: "warning", Text: "of one"}},
		Rates:    Rates{Decisions: []float64{1, 2, 3}, Denials: []float64{1}, Rules: []RuleRate{rate("x", 1, 1), rate("y", 5)}},
	}
	other := State{
		Latency: Latency{P99: 2, StoreP99: 3}, Leases: Leases{Made: 2, Returned: 1}, Store: Store{Degraded: 3},
		Problems: []Problem{{Level: "error", Text: "of another"}, {Level: "warning", Text: "of all"}},
		Rates:    Rates{Decisions: []float64{10, 10}, Denials: []float64{4, 4}, Rules: []RuleRate{rate("x", 7), rate("z", 1)}},
	}
	got := MergeStates([]Answer[State]{answer("a", own), answer("b", other), {From: "c", Err: errors.New("no answer")}})
	want := State{
		Instance: "own", Instances: Instances{{Name: "a", Answered: true}, {Name: "b", Answered: true}, {Name: "c", Error: "no answer"}},
		Latency: Latency{P99: 2, StoreP99: 4}, Leases: Leases{Made: 3, Returned: 1}, Store: Store{Degraded: 5},
		Problems: []Problem{{Level: "error", Text: "b: of another"}, {Level: "warning", Text: "of all"}, {Level: "warning", Text: "a: of one"}},
		Rates:    Rates{Decisions: []float64{1, 12, 13}, Denials: []float64{4, 5}, Rules: []RuleRate{rate("x", 1, 8), rate("y", 5), rate("z", 1)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(own.Rates.Rules) != 2 || own.Rates.Rules[0].Decisions[1] != 1 || own.Rates.Decisions[2] != 3 {
		t.Errorf("the own state has changed: %+v", own)
	}
}

func TestMergeResets(t *testing.T) {
	at := func(second int64) Reset { return Reset{At: time.Unix(second, 0), Instance: "host"} }
	got := MergeResets([]Answer[Resets]{answer("a", Resets{Resets: []Reset{at(3), at(1)}}), answer("b", Resets{Resets: []Reset{at(2)}})})
	if len(got.Resets) != 3 || got.Resets[0].Instance != "a" || got.Resets[1].Instance != "b" || got.Resets[2].At.Unix() != 1 {
		t.Errorf("got %+v", got.Resets)
	}
}
