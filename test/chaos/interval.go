package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/figures"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	reshardedName = "three services, slots migrate"

	// Small limits, of which the callers ask for several times as much.
	hotHits    = 50
	hotWindow  = 500 * time.Millisecond
	longHits   = 120
	longWindow = 2 * time.Second
	hotKeys    = 4 // of each kind
	services   = 3

	// lookEvery is how often the logs are read: often enough to read each entry before
	// it expires.
	lookEvery = 25 * time.Millisecond
)

// hotRules have three kinds of requests: on one log, on two logs of one slot, and on two logs
// of different slots. The store charges the last two one by one, and takes charges back.
const hotRules = `
domain: chaos
descriptors:
  - key: one
    rate_limit: {name: one, window: 500ms, requests: 50, on_store_error: deny}
  - key: two
    rate_limit: {name: two, on_store_error: deny, limits: [{window: 500ms, requests: 50}, {window: 2s, requests: 120}]}
  - key: left
    rate_limit: {name: left, window: 500ms, requests: 50, on_store_error: deny}
  - key: right
    rate_limit: {name: right, window: 500ms, requests: 50, on_store_error: deny}
`

// A hotLog is one that several callers of several services charge.
type hotLog struct {
	rule, value string
	limit       window.Limit
	callers     []int // whose allowed answers it holds
	key         string

	most     int // entries in one window, of all that were ever read at once
	readings int
	exceeded int // readings with more than the limit in a window
}

// kindsOfRequests returns the requests of the callers, and the logs that they charge.
func kindsOfRequests(callers int) (questions []*rlsv3.RateLimitRequest, logs []*hotLog) {
	short := window.Limit{Hits: hotHits, Window: hotWindow}
	log := func(rule, value string, limit window.Limit, caller int) {
		for _, l := range logs {
			if l.rule == rule && l.value == value && l.limit == limit {
				l.callers = append(l.callers, caller)
				return
			}
		}
		logs = append(logs, &hotLog{rule: rule, value: value, limit: limit, callers: []int{caller}})
	}
	for i := range callers {
		value := fmt.Sprintf("hot-%d", i/services%hotKeys)
		switch i % 3 {
		case 0:
			questions = append(questions, question("one", value))
			log("one", value, short, i)
		case 1:
			questions = append(questions, question("two", value))
			log("two", value, short, i)
			log("two", value, window.Limit{Hits: longHits, Window: longWindow}, i)
		default:
			// Not always the same pairs, so that one of them denies and the other not.
			other := fmt.Sprintf("hot-%d", i/(services*hotKeys)%hotKeys)
			q := question("left", value)
			q.Descriptors = append(q.Descriptors, program.Descriptor("right", other))
			questions = append(questions, q)
			log("left", value, short, i)
			log("right", other, short, i)
		}
	}
	return questions, logs
}

// resharded is the result of three services on one cluster while slots migrate.
type resharded struct {
	migrated
	begun             time.Time
	answers, degraded int
	logs              []*hotLog
	allowed           []int // answers that charge each log
	certain           []int // of them, the most that certainly lay in one window
	failures          []string
}

// runResharded has three services share hot logs on a cluster, and checks that no
// window ever holds more than its limit.
func runResharded(ctx context.Context, o *options) (*resharded, error) {
	r := new(resharded)
	err := process.Run(ctx, func(t process.TB) {
		if err := r.run(t, o); err != nil {
			t.Fatalf("%w", err)
		}
	})
	return r, err
}

func (r *resharded) run(t process.TB, o *options) error {
	ctx := t.Context()
	c := servers.StartCluster(t)
	var addresses []string
	for range services {
		addresses = append(addresses, startService(t, o.rls, hotRules, clusterURL(c), "").GRPC())
	}
	questions, logs := kindsOfRequests(o.callers)
	r.logs = logs
	l, err := newLoad(addresses, questions, o.interval())
	if err != nil {
		return err
	}
	t.Cleanup(l.close)
	r.begun = time.Now()
	l.start(ctx)
	program.Pause(ctx, o.warmUp)

	reader := newReader(c.Addrs())
	defer reader.Close()
	if err := findKeys(ctx, mastersOf(c), logs); err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var looks sync.WaitGroup
	var failed error
	looks.Go(func() { failed = look(looking, reader, logs) })
	if r.migrated, err = migrate(ctx, c, 3*o.lasts); err != nil {
		return err
	}
	program.Pause(ctx, o.warmUp)
	l.end()
	stop()
	looks.Wait()
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	r.judge(l.answers())
	return nil
}

// judge counts, and finds the failures.
func (r *resharded) judge(answers [][]answer) {
	for _, calls := range answers {
		for i := range calls {
			r.answers++
			switch {
			case calls[i].code != codes.OK:
				r.fail("a gRPC error %s", calls[i].code)
			case calls[i].degraded:
				r.degraded++
			}
		}
	}
	if r.slots == 0 {
		r.fail("no slot has migrated")
	}
	for _, l := range r.logs {
		var allowed []program.Span
		for _, caller := range l.callers {
			for _, a := range answers[caller] {
				if a.exact() && a.allowed {
					allowed = append(allowed, program.Span{From: a.sent.Sub(r.begun), To: a.received.Sub(r.begun)})
				}
			}
		}
		certain := program.MostInWindow(allowed, l.limit.Window)
		r.allowed = append(r.allowed, len(allowed))
		r.certain = append(r.certain, certain)
		if certain > int(l.limit.Hits) {
			r.fail("%s %s: %d calls were allowed within %v, limit %d", l.rule, l.value, certain, l.limit.Window, l.limit.Hits)
		}
		if l.exceeded > 0 {
			r.fail("%s %s: in %d of %d readings a window of %v holds more than %d", l.rule, l.value, l.exceeded, l.readings, l.limit.Window, l.limit.Hits)
		}
		if l.readings == 0 || l.most < int(l.limit.Hits)/2 {
			r.fail("%s %s: at most %d were charged in %v, in %d readings: the limit was not tried", l.rule, l.value, l.most, l.limit.Window, l.readings)
		}
	}
}

func (r *resharded) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// mostCharged returns the largest cost of entries in one half-open interval of the
// window's length.
func mostCharged(entries []window.Entry, win time.Duration) int {
	most, sum, first := 0, 0, 0
	for _, e := range entries {
		for sum += int(e.Cost); entries[first].At <= e.At-win; first++ {
			sum -= int(entries[first].Cost)
		}
		most = max(most, sum)
	}
	return most
}

// newReader returns a client that follows logs from server to server.
func newReader(addresses []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addresses, Protocol: 2, MaxRedirects: 10, ReadTimeout: 10 * time.Second, DisableIdentity: true,
		MaintNotificationsConfig: noNotifications, DisableRoutingPolicies: true,
	})
}

// findKeys finds the names of the logs in Redis. All of them are in use, so they
// are there sooner or later.
func findKeys(ctx context.Context, masters []string, logs []*hotLog) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for found := 0; found < len(logs); {
		var names []string
		for _, address := range masters {
			client := plainClient(address)
			keys, err := client.Keys(ctx, keyPrefix+"*").Result()
			if err = closing(client, err); err != nil {
				return err
			}
			names = append(names, keys...)
		}
		for _, l := range logs {
			at := slices.IndexFunc(names, l.isCalled)
			if at >= 0 && l.key == "" {
				l.key = names[at]
				found++
			}
		}
		program.Pause(ctx, lookEvery)
	}
	return nil
}

// isCalled reports whether a name in Redis is that of the log.
func (l *hotLog) isCalled(name string) bool {
	return strings.Contains(name, "|"+l.rule+":") && strings.Contains(name, l.value) &&
		strings.HasSuffix(name, ":"+strconv.FormatInt(l.limit.Window.Microseconds(), 10))
}

// look reads the logs over and over until ctx ends.
func look(ctx context.Context, reader *redis.ClusterClient, logs []*hotLog) error {
	for ctx.Err() == nil {
		for _, l := range logs {
			value, err := reader.Get(ctx, l.key).Bytes()
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, redis.Nil):
				continue
			case err != nil:
				return fmt.Errorf("reading %s: %w", l.key, err)
			}
			log, err := window.Decode(value)
			if err != nil {
				return fmt.Errorf("%s: %w", l.key, err)
			}
			most := mostCharged(log.Entries, l.limit.Window)
			l.readings++
			l.most = max(l.most, most)
			if most > int(l.limit.Hits) {
				l.exceeded++
			}
		}
		program.Pause(ctx, lookEvery)
	}
	return nil
}

// write writes the result as a Markdown table, a row for each kind of logs.
func (r *resharded) write(w io.Writer) {
	fmt.Fprintf(w, "%d services, %d slots migrated, %d answers, %d degraded:\n\n",
		services, r.slots, r.answers, r.degraded)
	figures.Head(w, "| rule | limit | logs | allowed | readings of the logs | most in a window, by a log | by the answers, for certain |")
	type kind struct {
		rule  string
		limit window.Limit
	}
	var kinds []kind
	for _, l := range r.logs {
		if k := (kind{l.rule, l.limit}); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	for _, k := range kinds {
		var logs, allowed, readings, most, certain int
		for i, l := range r.logs {
			if (kind{l.rule, l.limit}) == k {
				logs++
				allowed += r.allowed[i]
				readings += l.readings
				most, certain = max(most, l.most), max(certain, r.certain[i])
			}
		}
		fmt.Fprintf(w, "| %s | %d per %v | %d | %d | %d | %d | %d |\n", k.rule, k.limit.Hits, k.limit.Window, logs, allowed, readings, most, certain)
	}
}
