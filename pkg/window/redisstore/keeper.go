package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/serverclock"
)

var _ inspect.Inspector = (*Store)(nil)

const (
	// keeperTimeout bounds each round trip of Read, Remove and List, if the store's timeout
	// is shorter. A person waits for them, and no request does.
	keeperTimeout = time.Second
	// maxKept is how many logs one call of the script reads or removes at most, maxRead how many
	// bytes of each, and keepCalls how many calls are under way at once.
	maxKept   = maxShared
	maxRead   = 1 << 20
	keepCalls = 16
	// One call of List makes up to listCalls calls of SCAN, each of which looks at listCount
	// keys. It ends earlier if it has found listIDs ids, or after listTime.
	listCalls = 16
	listCount = 1000
	listIDs   = 1000
	listTime  = 100 * time.Millisecond
)

// Read implements [inspect.Inspector]. One call of a script reads up to 48 logs of one slot at one
// instant of the server's clock. A value that is not a log makes a log without entries, and stays.
// So does a log of more than a megabyte, which [Options.MaxLogSlots] rules out. All errors have a
// [failure.Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.keepAll(ctx, ids, "read")
}

// Remove implements [inspect.Inspector]. It also removes a value that is not a log. While a slot of a
// cluster moves, its logs are removed one after the other. After a timeout, the server may still
// remove the logs. Remove does not try again what may have run. All errors have a [failure.Class].
//
// Failures do not open the breaker of a server. While it is open, the server is not asked.
func (s *Store) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.keepAll(ctx, ids, "remove")
}

// A keeping is one call of [Store.Read] or [Store.Remove].
type keeping struct {
	store    *Store
	verb     string // of keeper.lua
	ids      []window.LogID
	keys     []string
	readings []inspect.Reading
	done     []bool
}

func (s *Store) keepAll(ctx context.Context, ids []window.LogID, verb string) ([]inspect.Reading, error) {
	k := &keeping{
		store: s, verb: verb, ids: ids, keys: make([]string, len(ids)),
		readings: make([]inspect.Reading, len(ids)), done: make([]bool, len(ids)),
	}
	for i, id := range ids {
		k.keys[i] = KeyName(s.opts.Prefix, id)
	}
	lots := k.lots()
	errs := make([]error, len(lots))
	calls := make(chan struct{}, keepCalls)
	var all sync.WaitGroup
	for i, lot := range lots {
		calls <- struct{}{}
		all.Go(func() {
			errs[i] = k.ask(ctx, lot)
			<-calls
		})
	}
	all.Wait()
	var those []inspect.Reading
	for i := range k.readings {
		if k.done[i] {
			those = append(those, k.readings[i])
		}
	}
	return those, cmp.Or(errs...)
}

// lots returns the parts that one call of the script handles each: indexes of ids, on a cluster of
// one hash tag.
func (k *keeping) lots() (lots [][]int) {
	byTag := make(map[string][]int)
	var tags []string // in the order of ids
	for i, key := range k.keys {
		tag := ""
		if k.store.cluster != nil {
			tag = window.HashTag(key)
		}
		if byTag[tag] == nil {
			tags = append(tags, tag)
		}
		byTag[tag] = append(byTag[tag], i)
	}
	for _, tag := range tags {
		lots = slices.AppendSeq(lots, slices.Chunk(byTag[tag], maxKept))
	}
	return lots
}

// patiently returns ctx with the time limit of a round trip for a person.
func (s *Store) patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(s.opts.Timeout, keeperTimeout))
}

// patience returns the local instant until which a call for a person waits for the topology.
func (s *Store) patience() int64 {
	return serverclock.Now() + int64(max(s.opts.Timeout, keeperTimeout))
}

// kept returns the error of a call for a person.
func kept(ctx context.Context, err error) error {
	return &failure.Error{Class: failure.Classify(err), Err: failure.Explain(ctx, err)}
}

// ask calls the script for a lot.
func (k *keeping) ask(ctx context.Context, lot []int) error {
	s := k.store
	n, err := s.nodeFor(ctx, k.keys[lot[0]], s.patience())
	if err != nil {
		return err
	}
	if n.open.Load() {
		return n.refused()
	}
	within, cancel := s.patiently(ctx)
	defer cancel()
	keys := make([]string, len(lot))
	for j, i := range lot {
		keys[j] = k.keys[i]
	}
	reply, err := s.scripts.logs.Run(within, s.client, keys, maxRead, k.verb)
	switch {
	case err == nil:
	case failure.Classify(err) == failure.Moved && len(lot) > 1:
		// While a slot moves, its keys are on two servers. The cluster's client finds each.
		var errs []error
		for _, i := range lot {
			errs = append(errs, k.ask(ctx, []int{i}))
		}
		return cmp.Or(errs...)
	default:
		return kept(within, err)
	}
	clock, logs, err := script.ReadLogs(reply, len(lot))
	if err != nil {
		return &failure.Error{Class: failure.Reply, Err: err}
	}
	for j, i := range lot {
		k.done[i] = true
		k.readings[i] = inspect.NewReading(k.ids[i], time.Duration(clock)*time.Microsecond, []byte(logs[j]))
	}
	return nil
}

// List implements [inspect.Inspector] by SCAN, on one server after the other. A call looks at up
// to 16,000 keys of a server, also at keys that are not logs. With [inspect.Match.Tag] it asks
// only the server of that slot. The probes of the store are not listed.
//
// While a slot moves, and if a failover changes the servers, a list may miss logs. If the
// server of the cursor is no longer a master, the error wraps [inspect.ErrCursor]. All other
// errors have a [failure.Class].
func (s *Store) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
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
	return ids, at.cursor(), nil
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
func (at scanning) cursor() string {
	name := ""
	switch {
	case at.position == 0 && at.after == "":
		return ""
	case at.position == 0:
		name = at.after
	case at.on.store.cluster != nil:
		name = at.on.address
	}
	return name + "/" + strconv.FormatUint(at.position, 10)
}

// scanned returns where a cursor says that a list is. Without a cursor it begins.
func (s *Store) scanned(ctx context.Context, m inspect.Match, cursor string) (at scanning, err error) {
	i := strings.LastIndexByte(cursor, '/')
	name := cursor[:max(i, 0)]
	if cursor != "" {
		at.position, err = strconv.ParseUint(cursor[i+1:], 10, 64)
		if i < 0 || err != nil || s.cluster == nil && i > 0 {
			return at, fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
	}
	switch {
	case s.cluster == nil:
		at.on = s.single
	case m.Tag != "" && cursor == "":
		at.on, err = s.nodeFor(ctx, s.opts.Prefix+"{"+m.Tag+"}", s.patience())
	case m.Tag != "":
		if at.on = s.nodeAt(name); at.on == nil {
			err = fmt.Errorf("redisstore: %w", inspect.ErrCursor)
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
		if i < 0 {
			return at, fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
		if at.on = masters[i]; i+1 < len(masters) {
			at.after = masters[i+1].address
		}
	}
	return at, err
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
		return nil, &failure.Error{Class: failure.Connect, Err: failure.Explain(ctx, err)}
	}
	slices.SortFunc(masters, func(a, b *node) int { return cmp.Compare(a.address, b.address) })
	return masters, nil
}

// pattern returns the pattern of SCAN for the names of matching logs. It may match more: the
// text may be in the window.
func (s *Store) pattern(m inspect.Match) string {
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
