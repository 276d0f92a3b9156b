package merge

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

func answer[T any](from string, v T) Answer[T] { return Answer[T]{From: from, Value: &v} }

func TestMergeDenials(t *testing.T) {
	at := func(second int64, rule string) insight.Denial {
		return insight.Denial{ID: uint64(second), At: time.Unix(second, 0), Rule: rule}
	}
	all := []Answer[insight.Denials]{
		answer("a", insight.Denials{Denials: []insight.Denial{at(5, "five"), at(1, "one")}, Seen: 2, Kept: 10, Sampled: 1, Instance: "host-a"}),
		{From: "b", Err: errors.New("no answer")},
		answer("c", insight.Denials{Denials: []insight.Denial{at(4, "four"), at(2, "two")}, Seen: 7, Kept: 10, Sampled: 3}),
	}
	got := Denials(all, 3)
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
	parts := Split(&got)
	if len(parts) != 3 || len(parts[0].Value.Denials) != 1 || len(parts[2].Value.Denials) != 2 || parts[1].Err.Error() != "no answer" {
		t.Errorf("split: %+v", parts)
	}
	if diff := cmp.Diff(got.Instances, Denials(parts, 3).Instances); diff != "" {
		t.Errorf("instances after split and merge (-want +got):\n%s", diff)
	}
	// One instance does not name itself in each row.
	if one := Denials(all[:1], 0); len(one.Denials) != 2 || one.Denials[0].Instance != "" || len(Split(&one)[0].Value.Denials) != 2 || one.Instances.String() != "from 1 instance" {
		t.Errorf("one instance: %+v", one)
	}
}

func TestMergeStates(t *testing.T) {
	rate := func(rule string, points ...float64) glance.RuleRate {
		return glance.RuleRate{Domain: "d", Rule: rule, Decisions: points, Denials: points}
	}
	own := glance.State{
		Instance: "own", Latency: glance.Latency{P99: 1, StoreP99: 4}, Leases: glance.Leases{Made: 1}, Store: glance.Store{Degraded: 2},
		Problems: []glance.Problem{{Level: "warning", Text: "of all"}, {Level: "warning", Text: "of one"}},
		Rates:    glance.Rates{Decisions: []float64{1, 2, 3}, Denials: []float64{1}, Rules: []glance.RuleRate{rate("x", 1, 1), rate("y", 5)}},
	}
	other := glance.State{
		Latency: glance.Latency{P99: 2, StoreP99: 3}, Leases: glance.Leases{Made: 2, Returned: 1}, Store: glance.Store{Degraded: 3},
		Problems: []glance.Problem{{Level: "error", Text: "of another"}, {Level: "warning", Text: "of all"}},
		Rates:    glance.Rates{Decisions: []float64{10, 10}, Denials: []float64{4, 4}, Rules: []glance.RuleRate{rate("x", 7), rate("z", 1)}},
	}
	got := States([]Answer[glance.State]{answer("a", own), answer("b", other), {From: "c", Err: errors.New("no answer")}})
	want := glance.State{
		Instance: "own", Instances: insight.Instances{{Name: "a", Answered: true}, {Name: "b", Answered: true}, {Name: "c", Error: "no answer"}},
		Latency: glance.Latency{P99: 2, StoreP99: 4}, Leases: glance.Leases{Made: 3, Returned: 1}, Store: glance.Store{Degraded: 5},
		Problems: []glance.Problem{{Level: "error", Text: "b: of another"}, {Level: "warning", Text: "of all"}, {Level: "warning", Text: "a: of one"}},
		Rates:    glance.Rates{Decisions: []float64{1, 12, 13}, Denials: []float64{4, 5}, Rules: []glance.RuleRate{rate("x", 1, 8), rate("y", 5), rate("z", 1)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(own.Rates.Rules) != 2 || own.Rates.Rules[0].Decisions[1] != 1 || own.Rates.Decisions[2] != 3 {
		t.Errorf("the own state has changed: %+v", own)
	}
}

func TestMergeResets(t *testing.T) {
	at := func(second int64) insight.Reset { return insight.Reset{At: time.Unix(second, 0), Instance: "host"} }
	got := Resets([]Answer[insight.Resets]{answer("a", insight.Resets{Resets: []insight.Reset{at(3), at(1)}}), answer("b", insight.Resets{Resets: []insight.Reset{at(2)}})})
	if len(got.Resets) != 3 || got.Resets[0].Instance != "a" || got.Resets[1].Instance != "b" || got.Resets[2].At.Unix() != 1 {
		t.Errorf("got %+v", got.Resets)
	}
}
