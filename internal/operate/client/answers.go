package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// AskAll asks all instances at once. The answers are in their order.
func AskAll[T any](ctx context.Context, c *Client, ask func(context.Context, Instance) (*T, error)) []merge.Answer[T] {
	all := make([]merge.Answer[T], len(c.Instances))
	var wait sync.WaitGroup
	for i, to := range c.Instances {
		wait.Go(func() {
			value, err := ask(ctx, to)
			all[i] = merge.Answer[T]{From: to.Name, Value: value, Err: err}
		})
	}
	wait.Wait()
	return all
}

// Partial is an error that comes with answers: an instance or its store did not answer.
type Partial struct{ error }

func (p Partial) Unwrap() error { return p.error }

// Failed returns nil if all instances answered, a [Partial] if some did, and another error if none
// did.
func Failed[T any](all []merge.Answer[T]) error { return Missing(merge.Of(all)) }

// Missing is [Failed] for the instances that an answer is from.
func Missing(of insight.Instances) error {
	missing := of.Missing()
	var lines []string
	for _, i := range missing {
		lines = append(lines, safetext.Text(i.Name)+": "+safetext.Text(i.Error))
	}
	text := errors.New(strings.Join(lines, "\n"))
	switch len(missing) {
	case 0:
		return nil
	case len(of):
		return text
	default:
		return Partial{fmt.Errorf("%s:\n%w", of, text)}
	}
}

// Incomplete is [Failed] for answers that have a problem of their own: if all instances answered, it
// returns a [Partial] with the first problem.
func Incomplete[T any](all []merge.Answer[T], problem func(*T) string) error {
	err := Failed(all)
	for _, a := range merge.Answered(all) {
		if text := problem(a.Value); text != "" && err == nil {
			err = Partial{fmt.Errorf("%s: %s", a.From, safetext.Text(text))}
		}
	}
	return err
}

// Document returns the JSON of the answers of several instances.
func Document[T any](all []merge.Answer[T]) any {
	type part struct {
		Admin  string `json:"admin"`
		Answer *T     `json:"answer,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	out := struct {
		Instances []part `json:"instances"`
	}{[]part{}}
	for _, a := range all {
		p := part{Admin: a.From, Answer: a.Value}
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
func shared[T any](all []merge.Answer[T], source func(*T) string) []merge.Answer[T] {
	seen := false
	return slices.DeleteFunc(all, func(a merge.Answer[T]) bool {
		inRedis := a.Err == nil && source(a.Value) == SourceRedis
		again := inRedis && seen
		seen = seen || inRedis
		return again
	})
}

// Logs returns the logs of rules in each instance, or of all rules without names. Instances that share a
// store count once. problems says what is missing.
func (c *Client) Logs(ctx context.Context, rules []string) (instances [][]insight.LimitUsage, problems []string, err error) {
	all := AskAll(ctx, c, func(ctx context.Context, to Instance) (*insight.Logs, error) { return c.logs(ctx, to, rules) })
	err = Failed(all)
	for _, a := range all {
		if a.Err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", a.From, a.Err))
		} else if a.Value.Next != "" {
			problems = append(problems, fmt.Sprintf("%s has more than %d logs: these are a part of them", a.From, len(a.Value.Logs)))
		}
	}
	for _, a := range shared(merge.Answered(all), func(l *insight.Logs) string { return l.Source }) {
		instances = append(instances, a.Value.Logs)
	}
	return instances, problems, err
}

// Merge returns the denials of all instances, the oldest first.
func Merge(all []merge.Answer[insight.Denials]) []insight.Denial {
	list := merge.Denials(all, math.MaxInt).Denials
	slices.Reverse(list)
	return list
}
