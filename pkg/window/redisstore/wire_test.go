package redisstore

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/test/servers"
)

// A rig runs the scripts at times of the test's choice, on whatever the test
// wants, whether or not a store would send that, and sees the bytes.
type rig struct {
	t      testing.TB
	client *redis.Client
	script script.Script
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, servers.Redis(t))
}

// newRigOn is newRig on a server that is there.
func newRigOn(t testing.TB, addr string) *rig {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	r := &rig{t: t, client: client, script: withClock(t, "ARGV[#ARGV]")}
	if err := client.ScriptLoad(t.Context(), r.script.Text).Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// An ask is a check, with what only the script's sender knows of it.
type ask struct {
	*window.Check
	ahead time.Duration
	flags byte // on the mode
}

// A request is a group: its checks in the order of the script, and its deadline in
// microseconds of the server's clock; 0 for none.
type request struct {
	asks     []ask
	deadline int64
}

// one is a request of one check.
func one(c *window.Check) request { return request{asks: []ask{{Check: c}}} }

// An answer is what the script says of a check.
type answer struct {
	outcome  byte
	decision window.Decision
}

// Flags of an ask.
const (
	reserves  = script.Reserves
	asks      = script.Asks
	unsettled = script.OutcomeUnsettled // of a denial that may count what is taken back
)

// late is the answer to every check of a group that comes too late.
var late = answer{outcome: 3}

// arguments are the script's: the keys, their number, and all of ARGV but the
// clock.
func arguments(requests []request) (keys, argv []string) {
	var checks, deadlines []byte
	soonest := int64(0)
	for _, q := range requests {
		for i, a := range q.asks {
			keys = append(keys, string(script.AppendKey(nil, "", a.Log())))
			group := byte(0)
			if i == len(q.asks)-1 {
				group = script.GroupEnds
			}
			checks = script.AppendCheck(checks, a.Check, group, a.flags, uint32(a.ahead.Microseconds()))
		}
		deadlines = script.AppendInstant(deadlines, q.deadline)
		if q.deadline > 0 && (soonest == 0 || q.deadline < soonest) {
			soonest = q.deadline
		}
	}
	names := make([]any, len(keys))
	for i := range keys {
		names[i] = keys[i]
	}
	script.MarkRepeats(checks, names)
	argv = []string{string(append(script.AppendInstant(nil, soonest), checks...))}
	if soonest > 0 {
		argv = append(argv, string(deadlines))
	}
	return keys, argv
}

// number reads a number of up to eight bytes.
func number(text string) uint64 {
	var b [8]byte
	copy(b[8-len(text):], text)
	return binary.BigEndian.Uint64(b[:])
}

// evalsha calls a script.
func (r *rig) evalsha(s script.Script, clock int64, keys, argv []string) *redis.Cmd {
	args := []any{"evalsha", s.SHA, len(keys)}
	for _, text := range append(keys, argv...) {
		args = append(args, text)
	}
	return redis.NewCmd(r.t.Context(), append(args, strconv.FormatInt(clock, 10))...)
}

// run runs requests as one call.
func (r *rig) run(clock int64, requests ...request) []answer {
	r.t.Helper()
	keys, argv := arguments(requests)
	cmd := r.evalsha(r.script, clock, keys, argv)
	if err := r.client.Process(r.t.Context(), cmd); err != nil {
		r.t.Fatalf("%+v at %d: %v", requests, clock, err)
	}
	return r.answers(cmd, clock, len(keys))
}

// answers reads a reply, at whose end must be the clock.
func (r *rig) answers(cmd *redis.Cmd, clock int64, n int) []answer {
	r.t.Helper()
	reply, err := cmd.Text()
	const each, instant = 29, 7
	if err != nil || len(reply) != n*each+instant {
		r.t.Fatalf("the reply to %d checks is %q (%d bytes), %v", n, reply, len(reply), err)
	}
	if got := number(reply[n*each:]); got != uint64(clock) {
		r.t.Fatalf("the script tells the clock %d, want %d", got, clock)
	}
	all := make([]answer, n)
	for i := range all {
		text := reply[i*each:][:each]
		wait := func(at int) time.Duration { return time.Duration(number(text[at:at+7])) * time.Microsecond }
		all[i] = answer{text[0] &^ script.OutcomeCut, window.Decision{
			Allowed: text[0]%4 == 1, Never: text[0]%4 == 2, Remaining: number(text[1:8]),
			RetryAfter: wait(8), UnitAfter: wait(15), ResetAfter: wait(22), Cut: text[0]&script.OutcomeCut != 0,
		}}
	}
	return all
}

// seen is what a step of a rig has shown.
type seen struct {
	decision window.Decision
	corrupt  bool
	log      []byte        // nil if there is none
	ttl      time.Duration // as PTTL tells
}

// take decides a group of one check.
func (r *rig) take(clock int64, c *window.Check, ahead time.Duration) seen {
	r.t.Helper()
	return r.takeNoting(clock, c, ahead, "")
}

// takeNoting is take with what the names of streams begin with, unless that is empty.
func (r *rig) takeNoting(clock int64, c *window.Check, ahead time.Duration, streams string) seen {
	r.t.Helper()
	keys, argv := arguments([]request{{asks: []ask{{Check: c, ahead: ahead}}}})
	if streams != "" {
		argv = append(argv, "", streams)
	}
	pipe := r.client.Pipeline()
	taken := r.evalsha(r.script, clock, keys, argv)
	_ = pipe.Process(r.t.Context(), taken)
	log := pipe.Get(r.t.Context(), keys[0])
	ttl := pipe.PTTL(r.t.Context(), keys[0])
	if _, err := pipe.Exec(r.t.Context()); err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatalf("%+v at %d: %v", *c, clock, err)
	}
	got := r.answers(taken, clock, 1)[0]
	s := seen{decision: got.decision, corrupt: got.outcome&script.OutcomeCorrupt != 0, ttl: ttl.Val()}
	if log.Err() == nil {
		s.log = []byte(log.Val())
	}
	return s
}

// drop ends a stream in a log. The decision is allowed if the stream held something.
func (r *rig) drop(clock int64, c *window.Check, deny time.Duration) seen {
	r.t.Helper()
	ends := withTime(r.t, script.Streams.Text, "ARGV[#ARGV]")
	key := string(script.AppendKey(nil, "", c.Log()))
	stream := string(binary.BigEndian.AppendUint64(nil, uint64(c.Stream)))
	held, err := r.client.Eval(r.t.Context(), ends.Text, []string{key}, "drop", stream, deny.Microseconds(), clock).Int()
	if err != nil {
		r.t.Fatal(err)
	}
	s := seen{decision: window.Decision{Allowed: held == 1}, ttl: r.client.PTTL(r.t.Context(), key).Val()}
	if log, err := r.client.Get(r.t.Context(), key).Bytes(); err == nil {
		s.log = log
	}
	return s
}

// logs returns the bytes of all keys that begin with a prefix, by what follows.
func (r *rig) logs(prefix string) map[string]string {
	r.t.Helper()
	all := make(map[string]string)
	keys, err := r.client.Keys(r.t.Context(), prefix+"*").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, key := range keys {
		value, err := r.client.Get(r.t.Context(), key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		all[strings.TrimPrefix(key, prefix)] = value
	}
	return all
}

// changes returns the server's own count of changes.
func (r *rig) changes() string {
	r.t.Helper()
	info, err := r.client.Info(r.t.Context(), "persistence").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
	n, _, ok := strings.Cut(rest, "\r\n")
	if !ok {
		r.t.Fatal("INFO persistence does not tell rdb_changes_since_last_save")
	}
	return n
}
