// Command window measures what a decision of pkg/window costs: Redis's CPU
// and memory, and that of the common sorted set. "make bench" runs it:
//
//	go -C bench run ./window [-rounds N] [-calls N] [-only REGEXP] [-redis BINARY]
//
// Absolute figures depend on the machine. So the result is the ratio to a baseline in the same
// round, and the tables show the medians of all rounds. The measurements of a row take turns to
// be first.
//
// # What is measured in Redis
//
// A separate redis-server answers pipelined EVALSHA calls. "CPU" is the CPU time of the
// process (INFO cpu, user and system) divided by the number of decisions. It is the whole cost
// of a decision on Redis's one core, with parsing and replies, and without the time of other
// processes. "Script" is the elapsed time that INFO commandstats reports for EVALSHA alone.
//
// The program records the calls of pkg/window/redisstore once and then replays them. It gives
// each reply back to the store, and checks that it is allowed or denied as the row requires.
//
// The baselines are the Lua files in this folder. Only this program uses them.
//
// # The past of a log
//
// The program does not wait for a log of 100,000 hits over the last minutes, but writes one.
// pkg/window makes its bytes with any clock, and plant.lua fills sorted sets.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/slidegate/slidegate/bench/internal/program"
	"github.com/slidegate/slidegate/test/process"
)

func main() { program.Main("window", run) }

// options are the flags.
type options struct {
	rounds int
	calls  int
	redis  string
	only   *regexp.Regexp

	// Tests make these smaller.
	keys  int    // logs that are asked in turn
	large uint64 // the largest limit that the sorted set is asked with
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := program.NewFlags("window")
	o := options{keys: 32, large: 100_000}
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured; the tables show medians")
	flags.IntVar(&o.calls, "calls", 16_000, "decisions of one measurement in Redis")
	flags.StringVar(&o.redis, "redis", "redis-server", "the `binary` of Redis, 6.2 or later, or of Valkey")
	flags.Only(&o.only, "measure only rows whose name matches this `regexp`, such as cpu/full/100")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 || o.calls < 1000 {
		return errors.New("-rounds must be at least 1 and -calls at least 1000")
	}
	rows, version, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %s; medians of %d rounds of %d calls\n", program.Machine("Redis and load"), version, o.rounds, o.calls)
	writeTables(out, rows)
	return nil
}

// measure measures the chosen rows. version is that of Redis.
func measure(ctx context.Context, o options, progress io.Writer) (measured []*row, version string, err error) {
	failed := process.Run(ctx, func(t process.TB) {
		b := newBench(t, o)
		version = b.version
		measured, err = b.measure(t.Context(), progress)
	})
	return measured, version, errors.Join(failed, err)
}

func (b *bench) measure(ctx context.Context, progress io.Writer) (measured []*row, err error) {
	for _, r := range b.rows() {
		if b.only.MatchString(r.name()) {
			measured = append(measured, r)
		}
	}
	if len(measured) == 0 {
		return nil, fmt.Errorf("-only %s matches nothing", b.only)
	}
	for round := range b.rounds {
		for _, r := range measured {
			if err := b.round(ctx, r, round%2 == 1); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name(), err)
			}
			fmt.Fprintf(progress, "round %d  %s\n", round+1, r)
		}
	}
	return measured, nil
}

// round measures a row once; backwards, the baseline comes first.
func (b *bench) round(ctx context.Context, r *row, backwards bool) error {
	measurements := []struct {
		measure probe
		samples *[]sample
	}{{r.ours, &r.our}, {r.base, &r.their}, {r.waits, &r.theirWaits}}
	if backwards {
		slices.Reverse(measurements)
	}
	for _, s := range measurements {
		if s.measure == nil {
			continue
		}
		taken, err := s.measure(ctx)
		if err != nil {
			return err
		}
		*s.samples = append(*s.samples, taken)
		if err := b.client.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}
