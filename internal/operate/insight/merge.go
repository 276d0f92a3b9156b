package insight

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/words"
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

// An Instance was asked for its part of an answer.
type Instance struct {
	Name     string `json:"name" doc:"the address of its admin port"`
	Answered bool   `json:"answered,omitempty"`
	Error    string `json:"error,omitempty" doc:"why it did not answer"`
	Count    int    `json:"count,omitempty" doc:"how many instances this is, if they have no name"`
}

// Instances are those that an answer is from, and those that did not answer. Empty: the answer is
// that of one instance, and nothing is known of others.
type Instances []Instance

// InstancesOf returns the instances of all answers.
func InstancesOf[T any](all []Answer[T]) (of Instances) {
	for _, a := range all {
		one := Instance{Name: a.From, Answered: a.Err == nil, Count: a.Count}
		if a.Err != nil {
			one.Error = a.Err.Error()
		}
		of = append(of, one)
	}
	return of
}

// Missing returns those that did not answer.
func (of Instances) Missing() Instances {
	return slices.DeleteFunc(slices.Clone(of), func(i Instance) bool { return i.Answered })
}

// String says how many instances answered, and which did not.
func (of Instances) String() string {
	total, answered := 0, 0
	var names []string
	for _, i := range of {
		total += max(i.Count, 1)
		if i.Answered {
			answered++
		} else {
			names = append(names, i.Name)
		}
	}
	if names == nil {
		return "from " + words.Counted(uint64(total), "instance")
	}
	return fmt.Sprintf("from %d of %s; %s did not answer", answered, words.Counted(uint64(total), "instance"), strings.Join(names, ", "))
}

// MergeDenials returns the newest denials of all instances, at most limit or 100, the newest
// first. Of several, each denial names its instance.
func MergeDenials(all []Answer[Denials], limit int) (sum Denials) {
	sum.Denials, sum.Instances = []Denial{}, InstancesOf(all)
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
	slices.SortStableFunc(sum.Denials, func(a, b Denial) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID)) })
	sum.Denials = sum.Denials[:min(len(sum.Denials), cmp.Or(limit, usualDenials))]
	return sum
}

// Split returns the denials of each of several instances. It is the inverse of [MergeDenials].
func (d *Denials) Split() []Answer[Denials] {
	all := make([]Answer[Denials], len(d.Instances))
	for n, i := range d.Instances {
		all[n] = Answer[Denials]{From: i.Name, Count: i.Count, Value: &Denials{}}
		if !i.Answered {
			all[n].Value, all[n].Err = nil, errors.New(i.Error)
			continue
		}
		all[n].Value.Denials = slices.DeleteFunc(slices.Clone(d.Denials), func(one Denial) bool { return one.Instance != "" && one.Instance != i.Name })
	}
	return all
}

// MergeResets returns the last resets of all instances, the newest first.
func MergeResets(all []Answer[Resets]) (sum Resets) {
	sum.Resets, sum.Instances = []Reset{}, InstancesOf(all)
	for _, a := range Answered(all) {
		for _, r := range a.Value.Resets {
			r.Instance = a.From
			sum.Resets = append(sum.Resets, r)
		}
	}
	slices.SortStableFunc(sum.Resets, func(a, b Reset) int { return b.At.Compare(a.At) })
	sum.Resets = sum.Resets[:min(len(sum.Resets), keptResets)]
	return sum
}

// SumTops adds rankings, of which each has at most limit entries, into one with most entries or 20. An
// entry that an instance does not list counts with what it may have there, so that no count is smaller
// than the true one.
func SumTops(all []Answer[Top], limit, most int) (sum Top) {
	good := Answered(all)
	if len(good) > 0 {
		sum = *good[0].Value
	}
	if sum.Instances = InstancesOf(all); len(good) < 2 {
		sum.Entries = sum.Entries[:min(len(sum.Entries), cmp.Or(most, usualTop))]
		return sum
	}
	sum.Error = 0
	type name struct{ shown, digest, address string } // a subject may have the name of a key
	entries := make(map[name]TopEntry)
	for _, a := range good {
		sum.Error, sum.Sampled = sum.Error+a.Value.mayHave(limit), sum.Sampled || a.Value.Sampled
	}
	sum.Exact = sum.Error == 0 && !sum.Sampled
	for _, a := range good {
		for _, e := range a.Value.Entries {
			n := name{e.Name, e.Digest, e.Address}
			have, listed := entries[n]
			if !listed {
				have.Count = sum.Error
			}
			e.Count += have.Count - a.Value.mayHave(limit)
			e.Peak = max(e.Peak, have.Peak)
			entries[n] = e
		}
	}
	sum.Entries = slices.AppendSeq([]TopEntry{}, maps.Values(entries))
	slices.SortFunc(sum.Entries, func(a, b TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	sum.Entries = sum.Entries[:min(len(sum.Entries), cmp.Or(most, usualTop))]
	return sum
}

// mayHave returns how often a name can occur that a list of at most limit entries lacks.
func (t *Top) mayHave(limit int) uint64 {
	if n := len(t.Entries); n >= limit {
		return max(t.Error, t.Entries[n-1].Count)
	}
	return t.Error
}

// maxRates is how many rules [Rates.Rules] has at most.
const maxRates = 50

// MergeStates returns the state of all instances: the sum of their rates and counts, the worst of
// their latencies, and the problems of each. The rest is of the first, which must have answered.
func MergeStates(all []Answer[State]) State {
	s := *all[0].Value
	good := Answered(all)
	s.Instances, s.Rates.Rules = InstancesOf(all), slices.Clone(s.Rates.Rules)
	s.Problems = problemsOf(good)
	for _, a := range good[1:] {
		v := a.Value
		s.Rates.add(&v.Rates)
		for to, from := range map[*float64]float64{
			&s.Latency.P50: v.Latency.P50, &s.Latency.P99: v.Latency.P99, &s.Latency.StoreP50: v.Latency.StoreP50, &s.Latency.StoreP99: v.Latency.StoreP99,
		} {
			*to = max(*to, from)
		}
		s.Store.Degraded += v.Store.Degraded
		s.Leases = Leases{s.Leases.Made + v.Leases.Made, s.Leases.Admitted + v.Leases.Admitted, s.Leases.Returned + v.Leases.Returned}
	}
	slices.SortStableFunc(s.Rates.Rules, func(a, b RuleRate) int { return cmp.Compare(last(b.Decisions), last(a.Decisions)) })
	s.Rates.Rules = s.Rates.Rules[:min(len(s.Rates.Rules), maxRates)]
	return s
}

// add adds the rates of another instance.
func (r *Rates) add(other *Rates) {
	r.Decisions, r.Denials, r.Degraded = sum(r.Decisions, other.Decisions), sum(r.Denials, other.Denials), sum(r.Degraded, other.Degraded)
	for _, o := range other.Rules {
		at := slices.IndexFunc(r.Rules, func(known RuleRate) bool { return known.Domain == o.Domain && known.Rule == o.Rule })
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
func problemsOf(all []Answer[State]) []Problem {
	problems, names := []Problem{}, make(map[Problem][]string)
	for _, a := range all {
		for _, p := range a.Value.Problems {
			if names[p] == nil {
				problems = append(problems, p)
			}
			names[p] = append(names[p], a.From)
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Level, b.Level) }) // error, warning
	for n, p := range problems {
		if who := names[p]; len(who) < len(all) {
			problems[n].Text = strings.Join(who, ", ") + ": " + p.Text
		}
	}
	return problems
}
