package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/bench/internal/program"
	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
)

func main() { program.Main("load", run) }

// Where customers can send: to a virtual service, or to one with a store.
const (
	onVirtual = "virtual"
	onMemory  = "memory"
	onRedis   = "redis"
)

// mostFailures is how many failures of a store are written.
const mostFailures = 10

// options are the flags.
type options struct {
	rls, envoy, config string
	stores             []string
	lasts, unit        time.Duration
	customers          int
	seed               uint64
	wrong              string
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := program.NewFlags("load")
	o := options{config: traffic.EnvoyConfig}
	flags.RLS(&o.rls)
	flags.StringVar(&o.envoy, "envoy", "", "the `binary` of Envoy; empty: what SLIDEGATE_TEST_ENVOY names, else envoy in PATH")
	stores := flags.String("stores", "virtual,memory,redis", "where customers send, one after the other: virtual is without Envoy and with a virtual clock")
	flags.DurationVar(&o.lasts, "for", time.Minute, "how long customers send")
	flags.DurationVar(&o.unit, "unit", 10*time.Second, "the long window of the limits; all times of the customers are in proportion to it")
	flags.IntVar(&o.customers, "customers", 200, "how many customers there are, without the saturating one")
	flags.Uint64Var(&o.seed, "seed", 1, "the same seed has the same customers")
	flags.StringVar(&o.wrong, "wrong", "", "make the service wrong, so that the run must fail: `more` allows a request too many, less a request too few, fixed has fixed windows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.stores = strings.Split(*stores, ",")
	for _, s := range o.stores {
		if s != onVirtual && s != onMemory && s != onRedis {
			return fmt.Errorf("-stores: unknown store %q, want some of %s, %s, %s", s, onVirtual, onMemory, onRedis)
		}
	}
	switch {
	case o.customers < 10 || o.customers > 9999:
		return errors.New("-customers must be from 10 to 9999")
	case o.unit < time.Second || o.unit > time.Hour || o.lasts <= 0:
		return errors.New("-unit must be from 1s to 1h, and -for above 0")
	case !slices.Contains([]string{"", "more", "less", "fixed"}, o.wrong):
		return fmt.Errorf("-wrong: unknown fault %q, want more, less or fixed", o.wrong)
	}
	fmt.Fprintf(out, "%s; %d customers for %v, seed %d\n\n", program.Machine("customers, Envoy, rls and Redis"), o.customers, o.lasts, o.seed)
	failed := 0
	for _, store := range o.stores {
		fmt.Fprintf(progress, "%s: %d customers send for %v, then two bursts\n", store, o.customers, o.lasts)
		failures, err := o.measure(ctx, store, out)
		if err != nil {
			return fmt.Errorf("%s: %w", store, err)
		}
		for i, f := range failures {
			if i == mostFailures {
				fmt.Fprintf(out, "FAILED %d more\n", len(failures)-i)
				break
			}
			fmt.Fprintln(out, "FAILED", f)
		}
		failed += len(failures)
	}
	if failed > 0 {
		return fmt.Errorf("%d requirements are not met", failed)
	}
	return nil
}

// measure runs everything on one store and writes the tables. It returns what is wrong.
func (o *options) measure(ctx context.Context, store string, out io.Writer) ([]string, error) {
	r, err := o.people(ctx, store)
	if err != nil {
		return nil, err
	}
	r.write(out)
	if o.wrong != "" {
		return r.failures, nil
	}
	b, err := o.bursts(ctx, store)
	if err != nil {
		return nil, err
	}
	failures := slices.Concat(r.failures, b.failures(o.customers))
	if len(b.without.back) > 0 && len(b.with.back) > 0 {
		b.write(out)
	}
	return failures, nil
}

// people runs customers who are like people, and judges what they got.
func (o *options) people(ctx context.Context, store string) (*report, error) {
	p := standard(o.unit, o.customers)
	all := people(p, o.unit, o.seed)
	rule, more := "", 0
	switch o.wrong {
	case "more":
		more = 1
	case "less":
		more = -1
	case "fixed":
		rule = "policy: fixed\n"
	}
	rules, tiers := rulesFile(p.tiers, rule, more), tiersFile(p.tiers, all)
	if err := o.send(ctx, store, rules, tiers, all, o.lasts); err != nil {
		return nil, err
	}
	return reportOf(store, p, all), nil
}

// bursts runs two equal bursts of jobs, the second with jitter.
func (o *options) bursts(ctx context.Context, store string) (*bursts, error) {
	b := new(bursts)
	for _, s := range []struct {
		to           *stampede
		jitter, rule string
	}{{&b.without, "0", ""}, {&b.with, jitter, "retry_jitter: " + jitter + "\n"}} {
		tiers, all := nightly(o.customers, o.unit, o.seed)
		if err := o.send(ctx, store, rulesFile(tiers, s.rule, 0), tiersFile(tiers, all), all, 0); err != nil {
			return nil, err
		}
		*s.to = stampedeOf(s.jitter, all)
	}
	return b, nil
}

// send starts a service and lets customers send: for a time, or until all have done their work if
// that is 0.
func (o *options) send(ctx context.Context, store, rules, tiers string, all []*customer, lasts time.Duration) error {
	return process.Run(ctx, func(t process.TB) {
		var err error
		if store == onVirtual {
			err = o.sendVirtual(t, rules, tiers, all, lasts)
		} else {
			err = o.sendLive(t, store, rules, tiers, all, lasts)
		}
		if err != nil {
			t.Fatalf("%w", err)
		}
	})
}

func (o *options) sendVirtual(t process.TB, rules, tiers string, all []*customer, lasts time.Duration) error {
	v, err := newVirtual(t.TempDir(), rules, tiers)
	if err != nil {
		return err
	}
	if lasts == 0 {
		lasts = never
	}
	return errors.Join(simulate(t.Context(), v, all, lasts, o.seed), v.close())
}

func (o *options) sendLive(t process.TB, store, rules, tiers string, all []*customer, lasts time.Duration) error {
	callers := 0
	for _, c := range all {
		callers += len(c.callers)
	}
	l := startLive(t, o, store, rules, tiers, callers)
	enough := func() bool { return everyBehaviourWasTried(all) }
	if lasts == 0 {
		enough = func() bool { return allAreDone(all) }
	}
	if err := l.run(t.Context(), all, lasts, enough); err != nil {
		return err
	}
	return l.audit(t.Context(), all)
}

// everyBehaviourWasTried reports whether customers of every behaviour have an answer, and whether
// the saturating one was denied: a run with less proves nothing.
func everyBehaviourWasTried(all []*customer) bool {
	tried := make(map[*behaviour]bool)
	for _, c := range all {
		c.mu.Lock()
		for _, a := range c.calls {
			tried[c.behaviour] = tried[c.behaviour] || c.behaviour.retry != saturates || !a.allowed
		}
		c.mu.Unlock()
	}
	return !slices.ContainsFunc(all, func(c *customer) bool { return !tried[c.behaviour] })
}

// allAreDone reports whether every customer has come back and was admitted.
func allAreDone(all []*customer) bool {
	return !slices.ContainsFunc(all, func(c *customer) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !slices.ContainsFunc(c.calls, func(a call) bool { return a.try > 0 && a.allowed })
	})
}
