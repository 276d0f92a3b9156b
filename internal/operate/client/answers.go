package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// An Answer is what one instance answered: a value or an error.
type Answer[T any] struct {
	From  Instance
	Value *T
	Err   error
}

// AskAll asks all instances at once. The answers are in their order.
func AskAll[T any](ctx context.Context, c *Client, ask func(context.Context, Instance) (*T, error)) []Answer[T] {
	all := make([]Answer[T], len(c.Instances))
	var wait sync.WaitGroup
	for i, to := range c.Instances {
		wait.Go(func() {
			value, err := ask(ctx, to)
			all[i] = Answer[T]{to, value, err}
		})
	}
	wait.Wait()
	return all
}

// Answered returns the answers that are no errors.
func Answered[T any](all []Answer[T]) (good []Answer[T]) {
	for _, a := range all {
		if a.Err == nil {
			good = append(good, a)
		}
	}
	return good
}

// Partial is an error that comes with answers: an instance or its store did not answer.
type Partial struct{ error }

func (p Partial) Unwrap() error { return p.error }

// Failed returns nil if all instances answered, a [Partial] if some did, and another error if none
// did.
func Failed[T any](all []Answer[T]) error {
	var lines []string
	for _, a := range all {
		if a.Err != nil {
			lines = append(lines, fmt.Sprintf("%s: %v", a.From.Name, a.Err))
		}
	}
	text := errors.New(strings.Join(lines, "\n"))
	switch len(lines) {
	case 0:
		return nil
	case len(all):
		return text
	default:
		return Partial{fmt.Errorf("%d of %d instances did not answer:\n%w", len(lines), len(all), text)}
	}
}

// Incomplete is [Failed] for answers that have a problem of their own: if all instances answered, it
// returns a [Partial] with the first problem.
func Incomplete[T any](all []Answer[T], problem func(*T) string) error {
	err := Failed(all)
	for _, a := range Answered(all) {
		if text := problem(a.Value); text != "" && err == nil {
			err = Partial{fmt.Errorf("%s: %s", a.From.Name, safetext.Text(text))}
		}
	}
	return err
}

// Document returns the JSON of the answers of several instances.
func Document[T any](all []Answer[T]) any {
	type part struct {
		Admin  string `json:"admin"`
		Answer *T     `json:"answer,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	out := struct {
		Instances []part `json:"instances"`
	}{[]part{}}
	for _, a := range all {
		p := part{Admin: a.From.Name, Answer: a.Value}
		if a.Err != nil {
			p.Error, p.Answer = a.Err.Error(), nil
		}
		out.Instances = append(out.Instances, p)
	}
	return out
}

// SourceRedis is the source of an answer of a store that instances share.
const SourceRedis = "redis"

// shared keeps one answer of the instances that share a store, and the answers of all that count in
// their own memory.
func shared(all []Answer[insight.Usage]) []Answer[insight.Usage] {
	seen := false
	return slices.DeleteFunc(all, func(a Answer[insight.Usage]) bool {
		if a.Err != nil || a.Value.Source != SourceRedis {
			return false
		}
		again := seen
		seen = true
		return again
	})
}

// Logs returns the logs of rules in each instance, or of all rules without names. Instances that share a
// store count once. problems says what is missing.
func (c *Client) Logs(ctx context.Context, rules []string) (instances [][]insight.LimitUsage, problems []string, err error) {
	all := AskAll(ctx, c, func(ctx context.Context, to Instance) (*insight.Logs, error) { return c.logs(ctx, to, rules) })
	seen := false
	for _, a := range all {
		if a.Err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", a.From.Name, a.Err))
			continue
		}
		if a.Value.Next != "" {
			problems = append(problems, fmt.Sprintf("%s has more than %d logs: these are a part of them", a.From.Name, len(a.Value.Logs)))
		}
		if a.Value.Source == SourceRedis && seen {
			continue
		}
		seen = seen || a.Value.Source == SourceRedis
		instances = append(instances, a.Value.Logs)
	}
	return instances, problems, Failed(all)
}

// A Denial is one of several instances.
type Denial struct {
	insight.Denial
	Admin string `json:"admin,omitempty"` // the instance; empty if there is only one
}

// Merge returns the denials of all instances, the oldest first.
func Merge(all []Answer[insight.Denials]) (out []Denial) {
	for _, a := range Answered(all) {
		admin := ""
		if len(all) > 1 {
			admin = a.From.Name
		}
		for _, d := range a.Value.Denials {
			out = append(out, Denial{d, admin})
		}
	}
	slices.SortStableFunc(out, func(a, b Denial) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Sum adds rankings, of which each has at most limit entries. An entry that an instance does not list
// counts with what it may have there, so that no count is smaller than the true one.
func Sum(all []Answer[insight.Top], limit int) (sum insight.Top) {
	if len(all) == 1 {
		return *all[0].Value
	}
	type name struct{ shown, digest, address string } // a subject may have the name of a key
	entries := make(map[name]insight.TopEntry)
	for _, a := range all {
		sum.Error, sum.Sampled = sum.Error+mayHave(a.Value, limit), sum.Sampled || a.Value.Sampled
	}
	for _, a := range all {
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
	sum.Exact = sum.Error == 0 && !sum.Sampled
	sum.Entries = slices.SortedFunc(maps.Values(entries), func(a, b insight.TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return sum
}

// mayHave returns how often a name can occur that a list of at most limit entries lacks.
func mayHave(t *insight.Top, limit int) uint64 {
	if n := len(t.Entries); n >= limit {
		return max(t.Error, t.Entries[n-1].Count)
	}
	return t.Error
}
