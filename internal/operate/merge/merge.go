// Package merge makes one answer of those of several instances: each function has an [Answer] of each
// instance, and the sum says who answered.
package merge

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// An Answer is what one instance answered: a value or an error.
type Answer[T any] struct {
	// From names the instance, and Count says how many it stands for if they have no name of their
	// own. Zero: one.
	From  string
	Count int
	Value *T
	Err   error
}

// Answered returns the answers that are no errors.
func Answered[T any](all []Answer[T]) []Answer[T] {
	return slices.DeleteFunc(slices.Clone(all), func(a Answer[T]) bool { return a.Err != nil })
}

// Of returns the instances of all answers.
func Of[T any](all []Answer[T]) (of insight.Instances) {
	for _, a := range all {
		one := insight.Instance{Name: a.From, Answered: a.Err == nil, Count: a.Count}
		if a.Err != nil {
			one.Error = a.Err.Error()
		}
		of = append(of, one)
	}
	return of
}

// Denials returns the newest denials of all instances, at most limit or 100, the newest
// first. Of several, each denial names its instance.
func Denials(all []Answer[insight.Denials], limit int) (sum insight.Denials) {
	sum.Denials, sum.Instances = []insight.Denial{}, Of(all)
	for _, a := range Answered(all) {
		sum.Seen, sum.Recorded, sum.Kept = sum.Seen+a.Value.Seen, sum.Recorded+a.Value.Recorded, sum.Kept+a.Value.Kept
		sum.Sampled, sum.Instance = max(sum.Sampled, a.Value.Sampled), cmp.Or(sum.Instance, a.Value.Instance)
		for _, d := range a.Value.Denials {
			if len(all) > 1 {
				d.Instance = a.From
			}
			sum.Denials = append(sum.Denials, d)
		}
	}
	slices.SortStableFunc(sum.Denials, func(a, b insight.Denial) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID)) })
	sum.Denials = sum.Denials[:min(len(sum.Denials), cmp.Or(limit, insight.UsualDenials))]
	return sum
}

// Split returns the denials of each of several instances. It is the inverse of [Denials].
func Split(d *insight.Denials) []Answer[insight.Denials] {
	all := make([]Answer[insight.Denials], len(d.Instances))
	for n, i := range d.Instances {
		all[n] = Answer[insight.Denials]{From: i.Name, Count: i.Count, Value: &insight.Denials{}}
		if !i.Answered {
			all[n].Value, all[n].Err = nil, errors.New(i.Error)
			continue
		}
		all[n].Value.Denials = slices.DeleteFunc(slices.Clone(d.Denials), func(one insight.Denial) bool { return one.Instance != "" && one.Instance != i.Name })
	}
	return all
}

// Resets returns the last resets of all instances, the newest first.
func Resets(all []Answer[insight.Resets]) (sum insight.Resets) {
	sum.Resets, sum.Instances = []insight.Reset{}, Of(all)
	for _, a := range Answered(all) {
		for _, r := range a.Value.Resets {
			r.Instance = a.From
			sum.Resets = append(sum.Resets, r)
		}
	}
	slices.SortStableFunc(sum.Resets, func(a, b insight.Reset) int { return b.At.Compare(a.At) })
	sum.Resets = sum.Resets[:min(len(sum.Resets), insight.KeptResets)]
	return sum
}

// Tops adds rankings, of which each has at most limit entries, into one with most entries or 20. An
// entry that an instance does not list counts with what it may have there, so that no count is smaller
// than the true one.
func Tops(all []Answer[insight.Top], limit, most int) (sum insight.Top) {
	good := Answered(all)
	if len(good) > 0 {
		sum = *good[0].Value
	}
	if sum.Instances = Of(all); len(good) < 2 {
		sum.Entries = sum.Entries[:min(len(sum.Entries), cmp.Or(most, insight.UsualTop))]
		return sum
	}
	sum.Error = 0
	type name struct{ shown, digest, address string } // a subject may have the name of a key
	entries := make(map[name]insight.TopEntry)
	for _, a := range good {
		sum.Error, sum.Sampled = sum.Error+mayHave(a.Value, limit), sum.Sampled || a.Value.Sampled
	}
	sum.Exact = sum.Error == 0 && !sum.Sampled
	for _, a := range good {
		for _, e := range a.Value.Entries {
			n := name{e.Name, e.Digest, e.Address}
			have, listed := entries[n]
			if !listed {
				have.Count = sum.Error
			}
			e.Count += have.Count - mayHave(a.Value, limit)
			e.Peak = max(e.Peak, have.Peak)
			entries[n] = e
		}
	}
	sum.Entries = slices.AppendSeq([]insight.TopEntry{}, maps.Values(entries))
	slices.SortFunc(sum.Entries, func(a, b insight.TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	sum.Entries = sum.Entries[:min(len(sum.Entries), cmp.Or(most, insight.UsualTop))]
	return sum
}

// mayHave returns how often a name can occur that a list of at most limit entries lacks.
func mayHave(t *insight.Top, limit int) uint64 {
	if n := len(t.Entries); n >= limit {
		return max(t.Error, t.Entries[n-1].Count)
	}
	return t.Error
}

// maxRates is how many rules [glance.Rates] has at most.
const maxRates = 50

// States returns the state of all instances: the sum of their rates and counts, the worst of
// their latencies, and the problems of each. The rest is of the first, which must have answered.
func States(all []Answer[glance.State]) glance.State {
	s := *all[0].Value
	good := Answered(all)
	s.Instances, s.Rates.Rules = Of(all), slices.Clone(s.Rates.Rules)
	s.Problems = problemsOf(good)
	for _, a := range good[1:] {
		v := a.Value
		add(&s.Rates, &v.Rates)
		for to, from := range map[*float64]float64{
			&s.Latency.P50: v.Latency.P50, &s.Latency.P99: v.Latency.P99, &s.Latency.StoreP50: v.Latency.StoreP50, &s.Latency.StoreP99: v.Latency.StoreP99,
		} {
			*to = max(*to, from)
		}
		s.Store.Degraded += v.Store.Degraded
		s.Leases = glance.Leases{Made: s.Leases.Made + v.Leases.Made, Admitted: s.Leases.Admitted + v.Leases.Admitted, Returned: s.Leases.Returned + v.Leases.Returned}
	}
	slices.SortStableFunc(s.Rates.Rules, func(a, b glance.RuleRate) int { return cmp.Compare(last(b.Decisions), last(a.Decisions)) })
	s.Rates.Rules = s.Rates.Rules[:min(len(s.Rates.Rules), maxRates)]
	return s
}

// add adds the rates of another instance to r.
func add(r, other *glance.Rates) {
	r.Decisions, r.Denials, r.Degraded = sum(r.Decisions, other.Decisions), sum(r.Denials, other.Denials), sum(r.Degraded, other.Degraded)
	for _, o := range other.Rules {
		at := slices.IndexFunc(r.Rules, func(known glance.RuleRate) bool { return known.Domain == o.Domain && known.Rule == o.Rule })
		if at < 0 {
			r.Rules = append(r.Rules, o)
			continue
		}
		known := &r.Rules[at]
		known.Decisions, known.Denials = sum(known.Decisions, o.Decisions), sum(known.Denials, o.Denials)
		known.Near, known.Shadow = known.Near+o.Near, known.Shadow+o.Shadow
	}
}

// sum adds points, of which the last ones are of the same time.
func sum(a, b []float64) []float64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, v := range b {
		out[len(a)-len(b)+i] += v
	}
	return out
}

func last(points []float64) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1]
}

// problemsOf returns the problems of all instances, the errors first, and names the instances that
// have one unless all have it.
func problemsOf(all []Answer[glance.State]) []glance.Problem {
	problems, names := []glance.Problem{}, make(map[glance.Problem][]string)
	for _, a := range all {
		for _, p := range a.Value.Problems {
			if names[p] == nil {
				problems = append(problems, p)
			}
			names[p] = append(names[p], a.From)
		}
	}
	slices.SortStableFunc(problems, func(a, b glance.Problem) int { return strings.Compare(a.Level, b.Level) }) // error, warning
	for n, p := range problems {
		if who := names[p]; len(who) < len(all) {
			problems[n].Text = strings.Join(who, ", ") + ": " + p.Text
		}
	}
	return problems
}
