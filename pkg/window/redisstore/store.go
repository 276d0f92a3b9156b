package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/ending"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/ordered"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

// A Client sends one command and waits for its reply. All clients of go-redis implement
// it: *redis.Client, *redis.ClusterClient, redis.UniversalClient. The package comment says
// how to configure them.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A cluster is a client of several servers, like *redis.ClusterClient.
type cluster interface {
	Client
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, f func(ctx context.Context, client *redis.Client) error) error
	ReloadState(ctx context.Context)
}

// The defaults of Options.
const (
	DefaultFailures      = 5
	DefaultProbeInterval = 100 * time.Millisecond
	// longest bounds the calls of a store without a timeout.
	longest = 10 * time.Second
)

// Options change what a store does. The zero value is usable.
type Options struct {
	// Prefix is put before every key, to keep several services on one Redis apart. It may
	// be empty. It must not have braces: they would replace the hash tag of the keys.
	Prefix string
	// Name is the name of a single server in [Stats] and a [Change]. Empty: the address
	// in the client's options.
	Name string
	// Timeout bounds one Take, whatever its context says, and with it every call
	// to a server. Zero: only the context bounds a Take.
	Timeout time.Duration
	// Calls is how many calls of the script a server has under way at most. Requests that come
	// meanwhile share the next one. Zero: two, which keep a server of the same region busy. More
	// are for a server far away: otherwise a request waits up to half a round trip for its call.
	Calls int
	// Failures is how many calls to a server must fail in a row to open its breaker.
	// Zero: DefaultFailures.
	Failures int
	// MaxWaiting is how many requests may wait for one server. If one more comes, the newest of
	// the lowest [window.Priority] fails at once with [failure.Overload]. Zero: any number.
	MaxWaiting int
	// ProbeInterval is how often a server is probed while its breaker is open. Zero:
	// DefaultProbeInterval.
	ProbeInterval time.Duration
	// Changed, if not nil, is called when a server's breaker opens, when a server begins to
	// refuse writes, and when that is over. It must be quick and must not call the store.
	Changed func(Change)
	// Policy, if not nil, is called with the maxmemory-policy of a server when it is read
	// for the first time, and when it has changed; see [Store.Connected]. If it could not
	// be read, policy is empty and err says why.
	Policy func(node, policy string, err error)
	// Answered, if not nil, is called for each call of the script that has answered a Take or a
	// Reserve, with its context and the number of requests that shared the call. For one Take on
	// several slots of a cluster it may run several times at once.
	Answered func(ctx context.Context, requests int)
	// Corrupt, if not nil, is called for every value under a key of the store that was
	// removed because it is not a log of the window. Take calls it, from several
	// goroutines at once, so it should be quick. It does not get the key, which may
	// identify a person.
	Corrupt func(win time.Duration)
}

// A Change says that a server has stopped deciding, or decides again.
type Change struct {
	Node string // its address
	// Open says that the breaker is open: the store does not ask the server. Refuses says
	// that the server refuses to write, so it decides only denials. If both are false, it
	// decides all requests.
	Open, Refuses bool
	Class         failure.Class // why
	Err           error
}

// Store keeps logs in Redis. Create it with New; its methods are safe for concurrent use.
type Store struct {
	client   Client
	cluster  cluster // nil if there is one server
	single   *node   // nil on a cluster
	opts     Options
	scripts  scripts
	ends     ending.Ends
	splits   atomic.Bool // a request has taken several calls because it was too long
	streams  string      // what the names begin with under which take.lua keeps the logs of streams; empty on a cluster
	topology topology
	nodes    nodes
	keepOnce sync.Once
	counts   counts

	seen seenInstances

	connected atomic.Bool // a connection was made since the policies were read

	life life
}

// scripts are those that a store calls.
type scripts struct{ take, takeBack, logs, ends script.Script }

// nodes are those of a cluster, and what calls pause for, by priority.
type nodes struct {
	ordered.Map[Client, *node]
	lanes, early [window.PriorityHigh - window.PriorityLow + 1]lane
}

// A life ends what runs in the background of a store.
type life struct {
	stop    context.CancelFunc
	stopped context.Context //nolint:containedctx // the store's own life, not a call's
	running sync.WaitGroup
}

var _ window.Store = (*Store)(nil)

// New returns a store on a client. The caller closes the client, after the store. New
// sends nothing: an unreachable server shows at the first Load or Take.
func New(client Client, o Options) *Store {
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.Calls == 0 {
		o.Calls = maxInFlight
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = DefaultProbeInterval
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	if o.Corrupt == nil {
		o.Corrupt = func(time.Duration) {}
	}
	if o.Policy == nil {
		o.Policy = func(string, string, error) {}
	}
	s := &Store{client: client, opts: o, scripts: scripts{script.Take, script.TakeBack, script.Logs, script.Streams}}
	s.counts.init()
	s.life.stopped, s.life.stop = context.WithCancel(context.Background())
	if c, ok := client.(cluster); ok {
		s.cluster = c
	} else {
		if o.Name == "" {
			o.Name = addressOf(client)
		}
		s.single = s.newNode(client, o.Name)
		s.streams = o.Prefix + ending.StreamBegins
	}
	for i := range s.nodes.lanes {
		s.nodes.lanes[i], s.nodes.early[i] = lane{s, false}, lane{s, true}
	}
	s.ends = s.newEnds()
	return s
}

// addressOf returns the name of a server in metrics and logs.
func addressOf(client Client) string {
	if c, ok := client.(*redis.Client); ok {
		return c.Options().Addr
	}
	return "redis"
}

// Load loads the scripts into the server, or into every master of a cluster, and learns
// their clocks. It makes the first call faster. Calling it is optional: the first call
// does what is missing.
func (s *Store) Load(ctx context.Context) error {
	load := func(ctx context.Context, n *node) error {
		for _, script := range []script.Script{s.scripts.take, s.scripts.takeBack} {
			cmd := redis.NewStringCmd(ctx, "script", "load", script.Text)
			if err := n.client.Process(ctx, cmd); err != nil {
				return err
			}
			if got := cmd.Val(); got != script.SHA {
				return fmt.Errorf("the server calls the script %.40q, want %q", got, script.SHA)
			}
		}
		return n.greet(ctx)
	}
	var err error
	if s.cluster != nil {
		err = s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return load(ctx, s.nodeOf(c)) })
	} else {
		err = load(ctx, s.single)
	}
	if err != nil {
		return &failure.Error{Class: failure.Classify(err), Err: fmt.Errorf("loading the script: %w", failure.Explain(ctx, err))}
	}
	return nil
}

// Close ends the background work of the store and waits for it. That takes at most the
// store's timeout, or 200 ms if hits are being taken back. It returns nil and does not close
// the client. The caller must not use the store afterwards.
func (s *Store) Close() error {
	s.life.stop()
	s.life.running.Wait()
	return nil
}

// background runs f in a goroutine that Close waits for.
func (s *Store) background(f func()) { s.life.running.Go(f) }

// pause waits for d. It returns false if the store was closed meanwhile.
func (s *Store) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.life.stopped.Done():
		return false
	}
}

// bounded returns ctx with the time limit of a call to a server.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeLimit())
}

// timeLimit returns the time limit of a call to a server.
func (s *Store) timeLimit() time.Duration { return cmp.Or(s.opts.Timeout, longest) }

// Take implements [window.Store] with one call to Redis. Other requests for the same server
// may share the call. If no check needs a log, there is no call. On a cluster, checks on
// several slots take one call each: see the package comment. So do the checks of a request
// whose script could run for more than 5 ms.
//
// If ctx is already done, Take sends nothing and returns an error. Take returns before the
// deadline of ctx, by a fifth of the remaining time and at least 2 ms. So the caller can
// still answer without the store. If that time, or the store's timeout, passes before the
// request was sent, it is not sent. If it passes later, the group may be charged or not.
// The error wraps that of ctx or [context.DeadlineExceeded]. All errors except those that
// wrap [window.ErrBadCheck] have a [failure.Class].
//
// If ctx is cancelled before its deadline, Take may return only after the store's timeout.
//
// Without wait, Take does nothing and returns false, because only Redis can decide. But if ctx has a
// [window.Pauser], a request pauses instead, and shares its calls with all that pause meanwhile, if it
// does not need a call before the one that decides.
func (s *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if p, ok := window.PauserFor(ctx, wait); ok {
		err = s.take(ctx, p, checks, decisions)
		decided = !errors.Is(err, errMustWait)
	}
	if !decided {
		return false, nil
	}
	return true, err
}

// errMustWait is returned by take for a request that cannot pause. Nothing was sent.
var errMustWait = errors.New("redisstore: the request has to wait")

// take is Take for a caller that may wait, or pause if p is not nil.
func (s *Store) take(ctx context.Context, p window.Pauser, checks []window.Check, decisions []window.Decision) error {
	if err := window.Validate(checks, decisions); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return s.count(&failure.Error{Class: failure.Gone, Err: err})
	}
	m := newMessage()
	if s.cluster != nil || s.splits.Load() {
		m.group.Flags = script.Asks // the store may take back charges of requests that take several calls
	}
	m.group.AddAll(s.opts.Prefix, checks, decisions)
	if len(m.group.Keys) == 0 {
		m.group.Fill()
		m.free()
		return nil
	}
	m.deadline, m.patient = s.deadline(ctx)
	deadline := m.deadline
	if p != nil && (m.group.SearchesMore(maxSearched) || s.cluster != nil && s.mustWait(m)) {
		m.free()
		return errMustWait
	}
	m.pauser = p
	if s.cluster == nil && m.group.SearchesMore(maxSearched) {
		m.free()
		s.splits.Store(true)
		return s.count(s.takeMultiSlot(ctx, nil, deadline, 0, checks, decisions))
	}
	if s.cluster == nil {
		_, err := s.ask(ctx, s.single, m)
		return s.count(err)
	}
	if err := s.noteStream(ctx, m); err != nil {
		m.free()
		return s.count(err)
	}
	ended := m.group.Ended
	if !m.route() || m.group.SearchesMore(maxSearched) {
		m.free()
		return s.count(s.takeMultiSlot(ctx, p, deadline, ended, checks, decisions))
	}
	n, err := s.nodeFor(ctx, m.group.Keys[0], deadline)
	if err != nil {
		m.free()
		return s.count(err)
	}
	// A call takes the store's timeout. If a step before it has taken some of that, the caller may have to leave it.
	m.patient = m.patient && s.whole(deadline)
	several := len(m.group.Keys) > 1
	_, err = s.ask(ctx, n, m)
	if several && failure.Of(err) == failure.Moved {
		// The slot is moving: some of the logs are here, some on the other server.
		err = s.takeMultiSlot(ctx, p, deadline, ended, checks, decisions)
	}
	return s.count(err)
}

// ask asks a node and fills in the decisions. It returns the server's clock, in microseconds. The
// caller must not use m afterwards.
func (s *Store) ask(ctx context.Context, n *node, m *message) (clock int64, err error) {
	if err := n.ask(ctx, m); err != nil {
		return 0, err
	}
	defer m.free()
	return m.clock, s.read(ctx, m)
}

// read fills in the decisions from the reply that a message has.
func (s *Store) read(ctx context.Context, m *message) error {
	if answered := s.opts.Answered; answered != nil {
		answered(ctx, m.batch)
	}
	if err := m.group.Answer(m.reply, s.opts.Corrupt); err != nil {
		return &failure.Error{Class: failure.Reply, Err: err}
	}
	return nil
}

// deadline returns the local time until which a call may take. It is zero if nothing bounds the
// call. patient says that it is the store's timeout.
func (s *Store) deadline(ctx context.Context) (deadline int64, patient bool) {
	begun := serverclock.Now()
	if s.opts.Timeout > 0 {
		deadline, patient = begun+int64(s.opts.Timeout), true
	}
	if d, ok := ctx.Deadline(); ok {
		// The caller needs some time to answer without the store.
		callerDeadline := serverclock.At(d)
		callerDeadline = max(callerDeadline-max(int64(answerTime), (callerDeadline-begun)/answerPart), 1)
		if deadline == 0 || callerDeadline < deadline {
			deadline, patient = callerDeadline, false
		}
	}
	return deadline, patient
}

// whole reports whether nearly all of the store's timeout is left until a local instant.
func (s *Store) whole(deadline int64) bool {
	return deadline-serverclock.Now() > int64(s.opts.Timeout-max(s.opts.Timeout/100, 100*time.Microsecond))
}

// The part of a caller's time that is left to answer without the store: one in answerPart, and at least answerTime.
const (
	answerTime = 2 * time.Millisecond
	answerPart = 5
)

var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// wait waits for the answer to a message. It returns nil if m has a reply. Otherwise the
// caller must not use m any more.
func (s *Store) wait(ctx context.Context, m *message) error {
	select {
	case <-m.done: // this goroutine has sent it itself
	default:
		var err error
		var timer *time.Timer
		var expired <-chan time.Time
		if m.deadline != 0 {
			timer = timers.Get().(*time.Timer)
			timer.Reset(time.Duration(m.deadline - serverclock.Now()))
			expired = timer.C
		}
		select {
		case <-m.done:
		case <-ctx.Done():
			err = &failure.Error{Class: failure.Gone, Err: ctx.Err()}
		case <-expired:
			err = &failure.Error{Class: failure.Timeout, Err: context.DeadlineExceeded}
		}
		if timer != nil {
			timer.Stop()
			timers.Put(timer)
		}
		if err != nil && m.leave() {
			return err
		}
	}
	if m.err != nil {
		err := m.err
		m.free()
		if ctx.Err() != nil {
			err = &failure.Error{Class: failure.Gone, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
		}
		return err
	}
	return nil
}
