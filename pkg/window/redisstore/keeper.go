package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

//go:embed keeper.lua
var keeperScript string

var _ window.Keeper = (*Store)(nil)

const (
	// keeperTimeout bounds each round trip of Read, Remove and List, if the store's timeout
	// is shorter. A person waits for them, and no request does.
	keeperTimeout = time.Second
	// maxKept is how many logs one round trip to a server reads or removes at most.
	maxKept = maxShared
	// One call of List makes up to listCalls calls of SCAN, each of which looks at listCount
	// keys. It ends earlier if it has found listIDs ids, or after listTime.
	listCalls = 16
	listCount = 1000
	listIDs   = 1000
	listTime  = 100 * time.Millisecond
)

// Read implements [window.Keeper]. Each server is asked for up to 48 logs in one round trip,
// and tells its own clock. Logs of one slot are read at one instant. A value that is not a
// log makes a log without entries, and stays. All errors have a [Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Read(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	return s.keepAll(ctx, ids, false)
}

// Remove implements [window.Keeper]. It also removes a value that is not a log. While a slot of a cluster moves,
// its logs are removed one after the other. A call that reaches the server after its deadline
// removes nothing. Remove does not try again what may have run. All errors
// have a [Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Remove(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	return s.keepAll(ctx, ids, true)
}

// A keeping is one call of [Store.Read] or [Store.Remove].
type keeping struct {
	store  *Store
	ids    []window.LogID
	keys   []string
	remove bool

	mu       sync.Mutex
	readings []window.Reading
	done     []bool
	err      error // the first
}

// A lot is a part of the logs of a keeping that one call of the script handles: indexes of
// its ids. On a cluster they are on one slot.
type lot []int

func (s *Store) keepAll(ctx context.Context, ids []window.LogID, remove bool) ([]window.Reading, error) {
	k := &keeping{
		store: s, ids: ids, remove: remove, keys: make([]string, len(ids)),
		readings: make([]window.Reading, len(ids)), done: make([]bool, len(ids)),
	}
	for i, id := range ids {
		k.keys[i] = KeyName(s.opts.Prefix, id)
	}
	// Every server has a goroutine, which makes one round trip after the other.
	var all sync.WaitGroup
	for n, lots := range k.route(ctx) {
		all.Go(func() {
			for len(lots) > 0 {
				trip := fit(lots)
				lots = lots[len(trip):]
				k.ask(ctx, n, trip)
			}
		})
	}
	all.Wait()
	var those []window.Reading
	for i := range k.readings {
		if k.done[i] {
			those = append(those, k.readings[i])
		}
	}
	return those, k.err
}

// route returns the lots of every server.
func (k *keeping) route(ctx context.Context) map[*node][]lot {
	byTag := make(map[string]lot)
	var tags []string // in the order of ids
	for i, key := range k.keys {
		tag := window.HashTag(key)
		if byTag[tag] == nil {
			tags = append(tags, tag)
		}
		byTag[tag] = append(byTag[tag], i)
	}
	lots := make(map[*node][]lot)
	for _, tag := range tags {
		n, err := k.store.nodeFor(ctx, k.keys[byTag[tag][0]], k.store.patience())
		if err != nil {
			k.fail(err)
			continue
		}
		for l := range slices.Chunk(byTag[tag], maxKept) {
			last := len(lots[n]) - 1
			if k.store.cluster == nil && last >= 0 && len(lots[n][last])+len(l) <= maxKept {
				lots[n][last] = append(lots[n][last], l...) // a single server needs no lot for each tag
			} else {
				lots[n] = append(lots[n], slices.Clone(l))
			}
		}
	}
	return lots
}

// fit returns the lots of the next round trip.
func fit(lots []lot) []lot {
	count, logs := 0, 0
	for count < len(lots) {
		if logs += len(lots[count]); logs > maxKept && count > 0 {
			break
		}
		count++
	}
	return lots[:count]
}

// fail notes an error.
func (k *keeping) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = cmp.Or(k.err, err)
}

// patiently returns ctx with the time limit of a round trip for a person.
func (s *Store) patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(s.opts.Timeout, keeperTimeout))
}

// patience returns the local instant until which a call for a person waits for the topology.
func (s *Store) patience() int64 { return now() + int64(max(s.opts.Timeout, keeperTimeout)) }

// kept returns the error of a call for a person.
func kept(ctx context.Context, err error) error {
	return &Error{Class: classify(err), Err: explain(ctx, err)}
}

// ask makes a round trip to a server.
func (k *keeping) ask(ctx context.Context, n *node, lots []lot) {
	if n.open.Load() {
		k.fail(n.refused())
		return
	}
	ctx, cancel := k.store.patiently(ctx)
	defer cancel()
	if !n.known() {
		// A deadline needs the server's clock.
		if err := n.greet(ctx); err != nil {
			k.fail(kept(ctx, err))
			return
		}
	}
	begun := now()
	cmds := k.pipeline(ctx, n, lots, false)
	if slices.ContainsFunc(cmds, func(c *once) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }) {
		var unknown []lot
		for i, c := range cmds {
			if redis.HasErrorPrefix(c.Err(), "NOSCRIPT") {
				unknown = append(unknown, lots[i]) // nothing has run
			} else {
				k.take(ctx, n, lots[i], c, begun, true)
			}
		}
		lots, begun = unknown, now()
		cmds = k.pipeline(ctx, n, lots, true)
	}
	for i, c := range cmds {
		k.take(ctx, n, lots[i], c, begun, true)
	}
}

// pipeline sends lots to a server. Every command has its own error.
func (k *keeping) pipeline(ctx context.Context, n *node, lots []lot, text bool) []*once {
	cmds := make([]*once, len(lots))
	for i, l := range lots {
		cmds[i] = k.command(ctx, n, l, text)
	}
	pipelined, ok := n.client.(interface{ Pipeline() redis.Pipeliner })
	if !ok || len(cmds) == 1 {
		for _, c := range cmds {
			setError(c, n.client.Process(ctx, c))
		}
		return cmds
	}
	pipe := pipelined.Pipeline()
	for _, c := range cmds {
		_ = pipe.Process(ctx, c) // only queues it
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	return cmds
}

// command returns the call of the script for a lot.
func (k *keeping) command(ctx context.Context, n *node, l lot, text bool) *once {
	s := k.store
	args := []any{"evalsha", s.keeper.sha, len(l)}
	if text {
		args[0], args[1] = "eval", s.keeper.text
	}
	for _, i := range l {
		args = append(args, k.keys[i])
	}
	var deadline int64
	verb := "read"
	if d, ok := ctx.Deadline(); ok && k.remove {
		deadline = n.clock.deadline(at(d))
		verb = "remove"
	}
	return newOnce(ctx, append(args, string(appendInstant(nil, deadline)), window.MaxRead, verb))
}

// take takes the answer to a lot. If follow is true, it asks again where nothing has run: if
// the slot is elsewhere, or if the deadline was wrong.
func (k *keeping) take(ctx context.Context, n *node, l lot, cmd *once, begun int64, follow bool) {
	if err := cmd.Err(); err != nil {
		if k.store.cluster != nil && follow && classify(err) == ClassMoved {
			k.store.cluster.ReloadState(ctx)
			for _, i := range l {
				// While a slot moves, its keys are on two servers. The cluster's client finds
				// each. Its clock is not known, so the old server's sets the deadline.
				one := k.command(ctx, n, lot{i}, true)
				sent := now()
				setError(one, k.store.client.Process(ctx, one))
				k.take(ctx, n, lot{i}, one, sent, false)
			}
			return
		}
		k.fail(kept(ctx, err))
		return
	}
	clock, logs, err := parseKept(cmd.Val(), len(l))
	if err != nil {
		k.fail(&Error{Class: ClassReply, Err: err})
		return
	}
	if follow {
		n.clock.learn(clock, begun, now())
	}
	if logs == nil { // it came late
		if follow && ctx.Err() == nil {
			again := k.command(ctx, n, l, true) // the clock was wrong
			sent := now()
			setError(again, n.client.Process(ctx, again))
			k.take(ctx, n, l, again, sent, false)
			return
		}
		k.fail(&Error{Class: ClassLate, Err: context.DeadlineExceeded})
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for j, i := range l {
		k.done[i] = true
		k.readings[i] = window.NewReading(k.ids[i], time.Duration(clock)*time.Microsecond, []byte(logs[j]))
	}
}

// parseKept parses the reply of keeper.lua to a call with so many keys. logs is nil if the
// call was late.
func parseKept(reply any, keys int) (clock int64, logs []string, err error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 1 && len(parts) != 1+keys {
		return 0, nil, fmt.Errorf("reply is %T of %d parts, want %d", reply, len(parts), 1+keys)
	}
	told, ok := parts[0].(string)
	if !ok || len(told) != instantBytes || bigEndian(told) > maxMicros {
		return 0, nil, errors.New("reply has no clock")
	}
	clock = int64(bigEndian(told))
	if len(parts) == 1 {
		return clock, nil, nil
	}
	logs = make([]string, keys)
	for i, p := range parts[1:] {
		if logs[i], ok = p.(string); !ok {
			return 0, nil, fmt.Errorf("reply has a %T, want the bytes of a log", p)
		}
	}
	return clock, logs, nil
}

// List implements [window.Keeper] by SCAN, on one server after the other. A call looks at up
// to 16,000 keys of a server, also at keys that are not logs. With [window.Match.Tag] it asks
// only the server of that slot. The probes of the store are not listed.
//
// If a failover or a moving slot changes the servers meanwhile, a list may miss logs. If the
// server of the cursor is no longer a master, the error wraps [window.ErrCursor]. All other
// errors have a [Class].
func (s *Store) List(ctx context.Context, m window.Match, cursor string) (ids []window.LogID, next string, err error) {
	begun := time.Now()
	at, err := s.scanned(ctx, m, cursor)
	if err != nil {
		return nil, "", err
	}
	if at.on.open.Load() {
		return nil, "", at.on.refused()
	}
	for range listCalls {
		var keys []string
		if keys, at.position, err = at.on.scan(ctx, s.pattern(m), at.position); err != nil {
			return nil, "", err
		}
		for _, key := range keys {
			if id, ok := s.logOf(key); ok && m.Matches(id.Key) && !isProbe(id) {
				ids = append(ids, id)
			}
		}
		if at.position == 0 || len(ids) >= listIDs || time.Since(begun) > listTime {
			break
		}
	}
	return ids, at.cursor(m.Tag != ""), nil
}

// RemoveAll removes every key with the prefix of the store: logs, receipts of charges, and whatever
// else begins with the prefix. So the prefix must be unique. It publishes nothing. All errors have
// a [Class]. While a server's breaker is open, the server is not asked.
func (s *Store) RemoveAll(ctx context.Context) error {
	servers := []*node{s.single}
	if s.cluster != nil {
		var err error
		if servers, err = s.masters(ctx); err != nil {
			return err
		}
	}
	for _, n := range servers {
		if n.open.Load() {
			return n.refused()
		}
		for position := uint64(0); ; {
			keys, next, err := n.scan(ctx, s.pattern(window.Match{}), position)
			if err != nil {
				return err
			}
			if err := n.unlink(ctx, keys); err != nil {
				return err
			}
			if position = next; position == 0 {
				break
			}
		}
	}
	return nil
}

// unlink removes keys. Each has a command of its own, because they may be on several slots.
func (n *node) unlink(ctx context.Context, keys []string) error {
	for _, key := range keys {
		ctx, cancel := n.store.patiently(ctx)
		err := n.client.Process(ctx, redis.NewIntCmd(ctx, "unlink", key))
		cancel()
		if err != nil {
			return kept(ctx, err)
		}
	}
	return nil
}

// scan calls SCAN once.
func (n *node) scan(ctx context.Context, pattern string, position uint64) ([]string, uint64, error) {
	ctx, cancel := n.store.patiently(ctx)
	defer cancel()
	cmd := redis.NewScanCmd(ctx, nil, "scan", position, "match", pattern, "count", listCount)
	if err := n.client.Process(ctx, cmd); err != nil {
		return nil, 0, kept(ctx, err)
	}
	keys, next := cmd.Val()
	return keys, next, nil
}

// isProbe reports whether a log is that of the probes of a server.
func isProbe(id window.LogID) bool {
	return id.Policy == window.Sliding && id.Window == time.Second && (id.Key == probeKey || strings.HasSuffix(id.Key, "}"+probeKey))
}

// A scanning is where a list is.
type scanning struct {
	on       *node
	position uint64 // of SCAN
	after    string // the address of the next server; empty: none
}

// cursor returns the cursor of the next call, or nothing after the last one.
func (at scanning) cursor(tag bool) string {
	name := ""
	switch {
	case at.on.store.cluster == nil && at.position == 0, at.position == 0 && at.after == "":
		return ""
	case at.position == 0:
		name = at.after
	case at.on.store.cluster != nil:
		name = at.on.address
		if tag && at.after != "" {
			name += nextMark + at.after
		}
	}
	return name + "/" + strconv.FormatUint(at.position, 10)
}

// nextMark separates the address of a server from that of the next one in a cursor.
const nextMark = ">"

// scanned returns where a cursor says that a list is. Without a cursor it begins.
func (s *Store) scanned(ctx context.Context, m window.Match, cursor string) (at scanning, err error) {
	i := strings.LastIndexByte(cursor, '/')
	name, next, _ := strings.Cut(cursor[:max(i, 0)], nextMark)
	if cursor != "" {
		at.position, err = strconv.ParseUint(cursor[i+1:], 10, 64)
		if i < 0 || err != nil || s.cluster == nil && i > 0 {
			return at, fmt.Errorf("redisstore: %w", window.ErrCursor)
		}
	}
	switch {
	case s.cluster == nil:
		at.on = s.single
	case m.Tag != "" && cursor == "":
		at.on, at.after, err = s.holders(ctx, s.opts.Prefix+"{"+m.Tag+"}")
	case m.Tag != "":
		if at.on, at.after = s.nodeAt(name), next; at.on == nil || next != "" && s.nodeAt(next) == nil {
			err = fmt.Errorf("redisstore: %w", window.ErrCursor)
		}
	default:
		var masters []*node
		if masters, err = s.masters(ctx); err != nil {
			return at, err
		}
		i := 0
		if cursor != "" {
			i = slices.IndexFunc(masters, func(n *node) bool { return n.address == name })
		}
		if i < 0 || next != "" {
			return at, fmt.Errorf("redisstore: %w", window.ErrCursor)
		}
		if at.on = masters[i]; i+1 < len(masters) {
			at.after = masters[i+1].address
		}
	}
	return at, err
}

// holders returns the server that has the slot of a key. If the slot is moving, next is the
// address of the server that it moves to. SCAN does not tell that a slot is elsewhere, so
// holders asks for the key first.
func (s *Store) holders(ctx context.Context, key string) (n *node, next string, err error) {
	if n, err = s.nodeFor(ctx, key, s.patience()); err != nil {
		return nil, "", err
	}
	for range maxHops {
		err = n.peek(ctx, key)
		words := strings.Fields(fmt.Sprint(err)) // MOVED or ASK, the slot, host:port
		switch {
		case err == nil:
			return n, "", nil
		case classify(err) != ClassMoved || len(words) != 3:
			return nil, "", kept(ctx, err)
		case words[0] == "ASK" && s.nodeAt(words[2]) != nil:
			return n, words[2], nil
		}
		s.cluster.ReloadState(ctx)
		if moved := s.nodeAt(words[2]); moved != nil {
			n = moved
		}
	}
	return nil, "", kept(ctx, err)
}

// peek asks for a byte of a key. It returns the error of the server.
func (n *node) peek(ctx context.Context, key string) error {
	ctx, cancel := n.store.patiently(ctx)
	defer cancel()
	return n.client.Process(ctx, redis.NewStringCmd(ctx, "getrange", key, 0, 0))
}

// masters returns the masters of a cluster in the order of their addresses.
func (s *Store) masters(ctx context.Context) ([]*node, error) {
	if err := s.learnTopology(ctx, s.patience()); err != nil {
		return nil, err
	}
	var (
		mu      sync.Mutex
		masters []*node
	)
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, s.nodeOf(c))
		return nil
	})
	if err == nil && len(masters) == 0 {
		err = errors.New("the cluster has no master")
	}
	if err != nil {
		return nil, &Error{Class: ClassConnect, Err: explain(ctx, err)}
	}
	slices.SortFunc(masters, func(a, b *node) int { return cmp.Compare(a.address, b.address) })
	return masters, nil
}

// pattern returns the pattern of SCAN for the names of matching logs. It may match more: the
// text may be in the window.
func (s *Store) pattern(m window.Match) string {
	p := literally(s.opts.Prefix)
	switch {
	case m.Tag != "":
		return p + "{" + literally(m.Tag) + "}*"
	case m.Contains != "":
		return p + "*" + literally(m.Contains) + "*"
	default:
		return p + "*"
	}
}

// literally escapes the characters that mean something in a pattern of Redis.
var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace

// logOf parses the name of a log's key.
func (s *Store) logOf(key string) (window.LogID, bool) {
	key, ok := strings.CutPrefix(key, s.opts.Prefix)
	if !ok {
		return window.LogID{}, false
	}
	return ParseKeyName(key)
}
