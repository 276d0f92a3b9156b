package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1; nothing is secured by it
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

//go:embed take.lua
var takeScript string

//go:embed takeback.lua
var takeBackScript string

// A Client sends one command and waits for its reply. Every client of go-redis
// is one: *redis.Client, *redis.ClusterClient, redis.UniversalClient. The
// package comment says how it must be configured.
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

// What Options are if they are zero.
const (
	DefaultFailures      = 5
	DefaultProbeInterval = 100 * time.Millisecond
	// longest bounds calls of a store without a timeout.
	longest = 10 * time.Second
)

// Options change what a store does. The zero value is usable.
type Options struct {
	// Prefix is put before every key, to tell several services on one Redis
	// apart. It may be empty. Braces in it would take the place of a hash tag in
	// the keys.
	Prefix string
	// Name is what a single server is called in [Stats] and a [Change]. Empty: its
	// address, as the client has it.
	Name string
	// Timeout bounds one Take, whatever its context says, and with it every call
	// to a server. Zero: only the context bounds a Take.
	Timeout time.Duration
	// Failures is how many calls to a server must fail one after the other until
	// it is not asked any more. Zero: DefaultFailures.
	Failures int
	// ProbeInterval is how often a server that is not asked is tried. Zero:
	// DefaultProbeInterval.
	ProbeInterval time.Duration
	// Refunds, unless empty, is a channel on which the script tells what logs have
	// got hits back: see [Store.Watch].
	Refunds string
	// Changed, if not nil, is told when a server stops being asked, or refuses to
	// write, and when that is over. It must not call the store, and be quick.
	Changed func(Change)
	// Deaf, if not nil, is told why [Store.Watch] does not hear of refunds, and nil
	// when it does again.
	Deaf func(error)
	// Policy, if not nil, is told the maxmemory-policy of a server when it has changed,
	// and first when it was read for the first time; see [Store.Connected]. With an
	// error it could not be read and is empty.
	Policy func(node, policy string, err error)
	// Foreign, if not nil, is told of every value under a key of the store that
	// is not a log of the given window and was therefore thrown away. It is
	// called in Take, by several callers at once, so it should be quick. It is
	// not told the key, which may stand for a person.
	Foreign func(win time.Duration)
}

// A Change is a server that does not decide any more, or does again.
type Change struct {
	Node string // its address
	// Open says that it is not asked any more. Refuses says that it is, but refuses
	// to write, so that only denials are decided. Neither: it decides.
	Open, Refuses bool
	Class         Class // why
	Err           error
}

// Store keeps logs in Redis. Create it with New; its methods are safe for
// concurrent use.
type Store struct {
	client   Client
	cluster  cluster // nil if there is one server
	single   *node   // nil on a cluster
	opts     Options
	script   script
	takeBack script
	topology topology
	nodes    sync.Map // on a cluster: *redis.Client -> *node
	keeping  sync.Once
	counts   counts

	connected chan struct{} // a connection was made since the policies were read
	reading   sync.Once

	stop    context.CancelFunc // ends what runs in the background
	stopped context.Context    //nolint:containedctx // the store's own life, not a call's
	running sync.WaitGroup
}

var _ window.Store = (*Store)(nil)

// A script is a text and the name under which Redis caches it.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}

// New returns a store on a client, which stays the caller's to close, after the
// store. It sends nothing: an unreachable server shows at the first Load or Take.
func New(client Client, o Options) *Store {
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = DefaultProbeInterval
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	if o.Foreign == nil {
		o.Foreign = func(time.Duration) {}
	}
	if o.Policy == nil {
		o.Policy = func(string, string, error) {}
	}
	if o.Deaf == nil {
		o.Deaf = func(error) {}
	}
	s := &Store{client: client, opts: o, script: newScript(takeScript), takeBack: newScript(takeBackScript), connected: make(chan struct{}, 1)}
	s.counts.init()
	s.stopped, s.stop = context.WithCancel(context.Background())
	if c, ok := client.(cluster); ok {
		s.cluster = c
	} else {
		if o.Name == "" {
			o.Name = addressOf(client)
		}
		s.single = s.newNode(client, o.Name)
	}
	return s
}

// addressOf is what a server is called in metrics and logs.
func addressOf(client Client) string {
	if c, ok := client.(*redis.Client); ok {
		return c.Options().Addr
	}
	return "redis"
}

// Load makes the scripts known to the server, or to every master of a cluster, and
// learns their clocks, so that the first call need not. Nothing depends on it: the
// first call does what it has not.
func (s *Store) Load(ctx context.Context) error {
	load := func(ctx context.Context, n *node) error {
		for _, script := range []script{s.script, s.takeBack} {
			cmd := redis.NewStringCmd(ctx, "script", "load", script.text)
			if err := n.client.Process(ctx, cmd); err != nil {
				return err
			}
			if got := cmd.Val(); got != script.sha {
				return fmt.Errorf("the server calls the script %.40q, want %q", got, script.sha)
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
		return &Error{Class: classify(err), Err: fmt.Errorf("loading the script: %w", explain(ctx, err))}
	}
	return nil
}

// Close ends what the store does in the background and waits for it, no longer
// than for the store's timeout or, where something is taken back, 200 ms. It returns nil; closing the client is up to its
// owner. Nothing may be called after it.
func (s *Store) Close() error {
	s.stop()
	s.running.Wait()
	return nil
}

// background runs f without anybody waiting for it but Close.
func (s *Store) background(f func()) { s.running.Go(f) }

// pause waits, and is false if the store was closed meanwhile.
func (s *Store) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stopped.Done():
		return false
	}
}

// bounded bounds a call to a server.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := s.opts.Timeout
	if timeout == 0 {
		timeout = longest
	}
	return context.WithTimeout(ctx, timeout)
}

// Take implements [window.Store] with one call to Redis, which it shares with
// other calls that are on their way to the same server, or with none if no check
// needs a log. On a cluster, checks whose logs are on several slots are one call
// for each: see the package comment.
//
// A ctx that is done already is an error before anything is sent. Take returns a
// fifth of its time before the deadline of ctx, at least 2 ms, so that the caller
// can still do without. If that, or the store's timeout, passes while the call
// waits to be sent, it is not sent; if that happens later, the group may be charged or not. The error then wraps the
// context's or [context.DeadlineExceeded]. All errors but those that wrap
// [window.ErrBadCheck] have a [Class].
//
// A ctx that is cancelled before its deadline may end Take only when the store's
// timeout has passed.
//
// Without wait, Take does nothing and returns false: whatever it decides it has to
// ask Redis.
func (s *Store) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	if !wait {
		return false, nil
	}
	return true, s.take(ctx, checks, decisions)
}

// take is Take for a caller that may wait.
func (s *Store) take(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	if err := window.Validate(checks, decisions); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return s.count(&Error{Class: ClassGone, Err: err})
	}
	m := newMessage()
	if s.cluster != nil {
		m.flags = modeAsks // requests on several slots may be taken back
	}
	m.add(s.opts.Prefix, checks, decisions)
	if len(m.keys) == 0 {
		m.fill()
		m.free()
		return nil
	}
	s.counts.calls.Add(1)
	begun := s.limit(ctx, m)
	deadline := m.deadline
	if s.cluster == nil {
		return s.count(s.single.inDoubt(s.decide(ctx, s.single, m), begun, deadline))
	}
	if !m.route() {
		m.free()
		return s.count(s.takeAcross(ctx, deadline, checks, decisions))
	}
	n, err := s.nodeFor(ctx, m.keys[0], deadline)
	if err != nil {
		m.free()
		return s.count(err)
	}
	several := len(m.keys) > 1
	err = s.decide(ctx, n, m)
	if several && ClassOf(err) == ClassMoved {
		// The slot is on its way, and some of the logs are here and some there.
		err = s.takeAcross(ctx, deadline, checks, decisions)
	} else {
		err = n.inDoubt(err, begun, deadline)
	}
	return s.count(err)
}

// decide asks a node and fills in the decisions. m is not the caller's after it.
func (s *Store) decide(ctx context.Context, n *node, m *message) error {
	if err := n.ask(ctx, m); err != nil {
		return err
	}
	defer m.free()
	if err := m.answer(s.opts.Foreign); err != nil {
		return &Error{Class: ClassReply, Err: err}
	}
	return nil
}

// limit sets when nobody waits for the answer to a message any more. It returns when it
// was called, by the local clock.
func (s *Store) limit(ctx context.Context, m *message) (begun int64) {
	begun = now()
	if s.opts.Timeout > 0 {
		m.deadline, m.patient = begun+int64(s.opts.Timeout), true
	}
	if d, ok := ctx.Deadline(); ok {
		// Who waits wants an answer before that, even if it is not the store's.
		own := at(d)
		own = max(own-max(int64(answerTime), (own-begun)/answerPart), 1)
		if m.deadline == 0 || own < m.deadline {
			m.deadline, m.patient = own, false
		}
	}
	return begun
}

// What is left of a caller's time to answer without the store: a fifth, and at
// least so much.
const (
	answerTime = 2 * time.Millisecond
	answerPart = 5
)

var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// wait waits for the answer to a message. It returns nil if m has a reply;
// otherwise m is not the caller's any more.
func (s *Store) wait(ctx context.Context, m *message) error {
	select {
	case <-m.done: // who has sent it by himself
	default:
		var err error
		if m.deadline != 0 {
			t := timers.Get().(*time.Timer)
			t.Reset(time.Duration(m.deadline - now()))
			select {
			case <-m.done:
			case <-ctx.Done():
				err = &Error{Class: ClassGone, Err: ctx.Err()}
			case <-t.C:
				err = &Error{Class: ClassTimeout, Err: context.DeadlineExceeded}
			}
			t.Stop()
			timers.Put(t)
		} else {
			select {
			case <-m.done:
			case <-ctx.Done():
				err = &Error{Class: ClassGone, Err: ctx.Err()}
			}
		}
		if err != nil && m.leave() {
			return err
		}
	}
	if m.err != nil {
		err := m.err
		m.free()
		if ctx.Err() != nil {
			err = &Error{Class: ClassGone, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
		}
		return err
	}
	return nil
}

// explain adds the context's error to one of the client if the context has ended.
// A socket's deadline is the context's and may be noticed first; it should not
// depend on a race whether the error is recognised.
func explain(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case ok && !time.Now().Before(deadline):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
