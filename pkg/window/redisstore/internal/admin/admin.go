// Package admin reads, lists and removes logs in Redis for operators, with SCAN and scripts, on all
// servers of a store. It decides nothing.
package admin

import (
	"cmp"
	"context"
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
)

// Servers is how an [Inspector] reaches the servers of a store.
type Servers interface {
	// Of returns the server that has a key.
	Of(ctx context.Context, key string) (Server, error)
	// All returns all servers, in the order of their addresses.
	All(ctx context.Context) ([]Server, error)
	// At returns the server with an address, or nil.
	At(address string) Server
}

// A Server is one server.
type Server interface {
	script.Client
	Address() string
	// Refused returns an error while the server is not asked, because it has failed.
	Refused() error
}

// An Inspector implements [inspect.Inspector] for a store. It is safe for concurrent use.
type Inspector struct {
	Servers   Servers
	Clustered bool
	Client    script.Client  // finds the server of a key
	Logs      *script.Script // reads and removes
	Prefix    string
	// Timeout bounds each round trip. A person waits for them, and no request does.
	Timeout time.Duration
	// Chunk is how many logs one call of the script reads or removes at most.
	Chunk int
}

const (
	// Timeout is the shortest timeout of an inspector.
	Timeout = time.Second
	// maxRead is how many bytes of each log one call of the script reads, and maxCalls how many calls
	// are under way at once.
	maxRead  = 1 << 20
	maxCalls = 16
	// One call of List makes up to listCalls calls of SCAN, each of which looks at listCount
	// keys. It ends earlier if it has found listIDs ids, or after listTime.
	listCalls = 16
	listCount = 1000
	listIDs   = 1000
	listTime  = 100 * time.Millisecond
)

// A bulkCall is one call of Read or Remove.
type bulkCall struct {
	*Inspector
	verb     string // of inspect.lua
	ids      []window.LogID
	keys     []string // of the logs, and then of what is reserved of them
	readings []inspect.Reading
	done     []bool
}

// Read reads logs.
func (in *Inspector) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return in.bulk(ctx, ids, "read")
}

// Remove removes logs.
func (in *Inspector) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return in.bulk(ctx, ids, "remove")
}

func (in *Inspector) bulk(ctx context.Context, ids []window.LogID, verb string) ([]inspect.Reading, error) {
	k := &bulkCall{
		Inspector: in, verb: verb, ids: ids, keys: make([]string, len(ids)),
		readings: make([]inspect.Reading, len(ids)), done: make([]bool, len(ids)),
	}
	for i, id := range ids {
		k.keys[i] = script.KeyName(in.Prefix, id)
	}
	if verb == "remove" {
		for i, id := range ids {
			if id.Policy != window.InFlight && window.HashTag(id.Key) != id.Key { // otherwise it has no budget
				k.keys = append(k.keys, k.keys[i]+script.HoldsSuffix)
			}
		}
		k.done = make([]bool, len(k.keys))
	}
	chunks := k.chunks()
	errs := make([]error, len(chunks))
	calls := make(chan struct{}, maxCalls)
	var all sync.WaitGroup
	for i, chunk := range chunks {
		calls <- struct{}{}
		all.Go(func() {
			errs[i] = k.ask(ctx, chunk)
			<-calls
		})
	}
	all.Wait()
	var done []inspect.Reading
	for i := range k.readings {
		if k.done[i] {
			done = append(done, k.readings[i])
		}
	}
	return done, cmp.Or(errs...)
}

// chunks returns what one call of the script handles each: indexes of ids, on a cluster of one hash
// tag.
func (k *bulkCall) chunks() (chunks [][]int) {
	byTag := make(map[string][]int)
	var tags []string // in the order of ids
	for i, key := range k.keys {
		tag := ""
		if k.Clustered {
			tag = window.HashTag(key)
		}
		if byTag[tag] == nil {
			tags = append(tags, tag)
		}
		byTag[tag] = append(byTag[tag], i)
	}
	size := k.Chunk
	if len(k.keys) > len(k.ids) {
		size *= 2 // a log and what is reserved of it go together
	}
	for _, tag := range tags {
		chunks = slices.AppendSeq(chunks, slices.Chunk(byTag[tag], size))
	}
	return chunks
}

// withAdminTimeout returns ctx with the time limit of a round trip.
func (in *Inspector) withAdminTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, in.Timeout)
}

// failed returns the error of a call to a server.
func failed(ctx context.Context, err error) error {
	return &failure.Error{Class: failure.Classify(err), Err: failure.Explain(ctx, err)}
}

// ask calls the script for a chunk.
func (k *bulkCall) ask(ctx context.Context, chunk []int) error {
	server, err := k.Servers.Of(ctx, k.keys[chunk[0]])
	if err != nil {
		return err
	}
	if err := server.Refused(); err != nil {
		return err
	}
	within, cancel := k.withAdminTimeout(ctx)
	defer cancel()
	keys := make([]string, len(chunk))
	for j, i := range chunk {
		keys[j] = k.keys[i]
	}
	reply, err := k.Logs.Run(within, k.Client, keys, maxRead, k.verb)
	switch {
	case err == nil:
	case failure.Classify(err) == failure.Moved && len(chunk) > 1:
		// While a slot moves, its keys are on two servers. The cluster's client finds each.
		var errs []error
		for _, i := range chunk {
			errs = append(errs, k.ask(ctx, []int{i}))
		}
		return cmp.Or(errs...)
	default:
		return failed(within, err)
	}
	clock, logs, err := script.ReadLogs(reply, len(chunk))
	if err != nil {
		return &failure.Error{Class: failure.Reply, Err: err}
	}
	for j, i := range chunk {
		if k.done[i] = true; i >= len(k.ids) {
			break
		}
		k.readings[i] = inspect.NewReading(k.ids[i], time.Duration(clock)*time.Microsecond, []byte(logs[j]))
	}
	return nil
}

// List lists logs by SCAN, on one server after the other.
func (in *Inspector) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	begun := time.Now()
	at, err := in.position(ctx, m, cursor)
	if err != nil {
		return nil, "", err
	}
	if err := at.on.Refused(); err != nil {
		return nil, "", err
	}
	for range listCalls {
		var keys []string
		if keys, at.position, err = in.scan(ctx, at.on, in.pattern(m), at.position); err != nil {
			return nil, "", err
		}
		for _, key := range keys {
			if id, ok := in.logOf(key); ok && m.Matches(id.Key) && !IsProbe(id) {
				ids = append(ids, id)
			}
		}
		if at.position == 0 || len(ids) >= listIDs || time.Since(begun) > listTime {
			break
		}
	}
	return ids, at.cursor(in.Clustered), nil
}

// scan calls SCAN once.
func (in *Inspector) scan(ctx context.Context, on Server, pattern string, position uint64) ([]string, uint64, error) {
	ctx, cancel := in.withAdminTimeout(ctx)
	defer cancel()
	cmd := redis.NewScanCmd(ctx, nil, "scan", position, "match", pattern, "count", listCount)
	if err := on.Process(ctx, cmd); err != nil {
		return nil, 0, failed(ctx, err)
	}
	keys, next := cmd.Val()
	return keys, next, nil
}

// ProbeKey is the key of the log for probes of servers. No check of the service has such a short key.
const ProbeKey = "probe"

// IsProbe reports whether a log is that of the probes of a server.
func IsProbe(id window.LogID) bool {
	return id.Policy == window.Sliding && id.Window == time.Second && (id.Key == ProbeKey || strings.HasSuffix(id.Key, "}"+ProbeKey))
}

// A listPosition is where a list is.
type listPosition struct {
	on       Server
	position uint64 // of SCAN
	after    string // the address of the next server; empty: none
}

// cursor returns the cursor of the next call, or nothing after the last one.
func (at listPosition) cursor(clustered bool) string {
	name := ""
	switch {
	case at.position == 0 && at.after == "":
		return ""
	case at.position == 0:
		name = at.after
	case clustered:
		name = at.on.Address()
	}
	return name + "/" + strconv.FormatUint(at.position, 10)
}

// position returns where a cursor says that a list is. Without a cursor it begins.
func (in *Inspector) position(ctx context.Context, m inspect.Match, cursor string) (at listPosition, err error) {
	i := strings.LastIndexByte(cursor, '/')
	name := cursor[:max(i, 0)]
	if cursor != "" {
		at.position, err = strconv.ParseUint(cursor[i+1:], 10, 64)
		if i < 0 || err != nil || !in.Clustered && i > 0 {
			return at, fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
	}
	switch {
	case !in.Clustered, m.Tag != "" && cursor == "":
		at.on, err = in.Servers.Of(ctx, in.Prefix+"{"+m.Tag+"}")
	case m.Tag != "":
		if at.on = in.Servers.At(name); at.on == nil {
			err = fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
	default:
		var servers []Server
		if servers, err = in.Servers.All(ctx); err != nil {
			return at, err
		}
		i := 0
		if cursor != "" {
			i = slices.IndexFunc(servers, func(s Server) bool { return s.Address() == name })
		}
		if i < 0 {
			return at, fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
		if at.on = servers[i]; i+1 < len(servers) {
			at.after = servers[i+1].Address()
		}
	}
	return at, err
}

// pattern returns the pattern of SCAN for the names of matching logs. It may match more: the
// text may be in the window.
func (in *Inspector) pattern(m inspect.Match) string {
	p := literally(in.Prefix)
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
func (in *Inspector) logOf(key string) (window.LogID, bool) {
	key, ok := strings.CutPrefix(key, in.Prefix)
	if !ok {
		return window.LogID{}, false
	}
	return script.ParseKeyName(key)
}
