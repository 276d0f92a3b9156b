package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/figures"
	"github.com/slidegate/slidegate/test/peer"
	"github.com/slidegate/slidegate/test/program"
	"github.com/slidegate/slidegate/test/servers"
)

// memoryName is what the measurement of connections and streams is called; the row of
// a transport is memoryName and its name.
const memoryName = "connections"

const (
	idleConnections = 5000
	// Open streams are spread over a few connections.
	streamConnections    = 10
	streamsOfAConnection = 1000
	// patience is how long a service waits for a Redis that does not answer: the longest
	// that its settings allow. A stream that ends during the measurement is an error.
	patience = 10 * time.Second
	// pause is how long Redis does not answer.
	pause = time.Minute
)

// memory is how much memory connections and streams take, on each transport.
type memory struct{ rows []memoryRow }

type memoryRow struct {
	transport string
	what      string
	n         int
	before    program.State
	after     program.State
}

// measureMemory measures the chosen transports, each state in a process of its own.
func (b *bench) measureMemory(ctx context.Context) (*memory, error) {
	m := new(memory)
	for _, transport := range []string{onUnary, onStandard} {
		if !b.only.MatchString(memoryName + "/" + transport) {
			continue
		}
		for _, measure := range []func(context.Context, string) ([]memoryRow, error){b.idle, b.halfSent, b.waiting} {
			rows, err := measure(ctx, transport)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", transport, err)
			}
			m.rows = append(m.rows, rows...)
			for _, r := range rows {
				fmt.Fprintf(b.progress, "%s  %-8s %s: %.1f kB each\n", memoryName, transport, r.what, r.resident()/1e3)
			}
		}
	}
	if m.rows == nil {
		return nil, nil //nolint:nilnil // nothing was chosen
	}
	return m, nil
}

// peers connects n times to a service and exchanges settings.
func peers(ctx context.Context, address string, n int) ([]*peer.Peer, error) {
	all := make([]*peer.Peer, 0, n)
	for range n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return all, err
		}
		if err := conn.SetDeadline(time.Now().Add(2 * pause)); err != nil {
			return all, err
		}
		p, err := peer.New(conn, 0)
		if err != nil {
			return all, errors.Join(err, conn.Close())
		}
		all = append(all, p)
		if err := p.Settle(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// hangUp closes connections and ignores errors.
func hangUp(all []*peer.Peer) {
	for _, p := range all {
		_ = p.Close()
	}
}

// fresh starts a service on a transport, with more settings. stop ends it.
func (b *bench) fresh(transport string, settings map[string]string) (t target, stop func()) {
	env := map[string]string{"SLIDEGATE_GRPC_TRANSPORT": transport, "SLIDEGATE_TIERS_SOURCE": "none"}
	maps.Copy(env, settings)
	rls := edge.StartRLS(b.t, edge.RLSOptions{Binary: b.rls, Rules: rulesWithoutTiers, Env: env})
	return target{name: transport, grpc: rls.GRPC(), admin: rls.Admin()}, rls.Close
}

// idle is connections without open calls, before their first call and after it.
func (b *bench) idle(ctx context.Context, transport string) ([]memoryRow, error) {
	t, stop := b.fresh(transport, nil)
	defer stop()
	before, err := program.AtRest(ctx, t.admin)
	if err != nil {
		return nil, err
	}
	all, err := peers(ctx, t.grpc, idleConnections)
	defer hangUp(all)
	if err != nil {
		return nil, err
	}
	unused, err := program.AtRest(ctx, t.admin)
	if err != nil {
		return nil, err
	}
	method, message, err := oneCall()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		stream, err := p.Call(method, message)
		if err != nil {
			return nil, err
		}
		if a, err := p.Answer(stream); err != nil || a.Status != "0" {
			return nil, fmt.Errorf("a call was answered %+v: %w", a, err)
		}
	}
	used, err := program.AtRest(ctx, t.admin)
	return []memoryRow{
		{transport, "idle connection, without a call so far", len(all), before, unused},
		{transport, "idle connection, after a call", len(all), before, used},
	}, err
}

// oneCall is a rate-limit request that is allowed.
func oneCall() (method string, message []byte, err error) {
	s := limited("allowed", largeKey, 1, rlsv3.RateLimitResponse_OK)
	message, err = proto.Marshal(s.request)
	return s.method, message, err
}

// streams opens many streams and calls begin for each, which sends on it.
func (b *bench) streams(ctx context.Context, t target, what string, begin func(*peer.Peer) error) ([]memoryRow, error) {
	all, err := peers(ctx, t.grpc, streamConnections)
	defer hangUp(all)
	if err != nil {
		return nil, err
	}
	before, err := program.AtRest(ctx, t.admin) // the connections are not what is measured
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		for range streamsOfAConnection {
			if err := begin(p); err != nil {
				return nil, err
			}
		}
		if err := p.Settle(); err != nil {
			return nil, err
		}
	}
	after, err := program.AtRest(ctx, t.admin)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if err := p.Settle(); err != nil {
			return nil, err
		}
		if n := p.Ended(); n > 0 {
			return nil, fmt.Errorf("%s: %d of %d streams ended while they were measured", what, n, streamsOfAConnection)
		}
	}
	return []memoryRow{{t.name, what, streamConnections * streamsOfAConnection, before, after}}, nil
}

// halfSent is calls whose headers have come, and no message yet.
func (b *bench) halfSent(ctx context.Context, transport string) ([]memoryRow, error) {
	t, stop := b.fresh(transport, nil)
	defer stop()
	method, _, err := oneCall()
	if err != nil {
		return nil, err
	}
	return b.streams(ctx, t, "open stream, before its message", func(p *peer.Peer) error {
		_, err := p.Open(method)
		return err
	})
}

// waiting is calls that wait for Redis, which has paused all its clients.
func (b *bench) waiting(ctx context.Context, transport string) ([]memoryRow, error) {
	server := servers.StartRedis(b.t)
	defer server.Stop()
	t, stop := b.fresh(transport, map[string]string{
		"SLIDEGATE_STORE_TYPE":      "redis",
		"SLIDEGATE_STORE_REDIS_URL": "redis://" + server.Addr(),
		"SLIDEGATE_STORE_TIMEOUT":   patience.String(),
	})
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }() // the server ends next
	if err := client.ClientPause(ctx, pause).Err(); err != nil {
		return nil, err
	}
	method, message, err := oneCall()
	if err != nil {
		return nil, err
	}
	return b.streams(ctx, t, "open stream, waiting for Redis", func(p *peer.Peer) error {
		_, err := p.Call(method, message)
		return err
	})
}

// resident returns the growth of resident memory for each connection or stream, in
// bytes.
func (r *memoryRow) resident() float64 { return (r.after.Resident - r.before.Resident) / float64(r.n) }

// live returns the same of memory in use, on the heap and on stacks.
func (r *memoryRow) live() float64 {
	return (r.after.Heap + r.after.Stacks - r.before.Heap - r.before.Stacks) / float64(r.n)
}

// write writes the result as a Markdown table.
func (m *memory) write(w io.Writer) {
	if m == nil {
		return
	}
	figures.Head(w, "| connections | of | how many | resident kB each | heap and stacks in use, kB each |")
	for _, r := range m.rows {
		fmt.Fprintf(w, "| %s | %s | %d | %.1f | %.1f |\n", r.transport, r.what, r.n, r.resident()/1e3, r.live()/1e3)
	}
	fmt.Fprintln(w)
}
