package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/peer"
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
	// patience is how long a service waits for a Redis that does not answer: as long as
	// it can be told to. Streams that end before they are measured are found out.
	patience = 10 * time.Second
	// pause is how long Redis does not answer.
	pause = time.Minute
)

// memory is what connections and streams cost a service, on each transport.
type memory struct{ rows []memoryRow }

type memoryRow struct {
	transport string
	what      string
	n         int
	before    reading
	after     reading
}

// measureMemory measures the transports that were asked for, each state in a process
// of its own.
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
		return nil, nil //nolint:nilnil // nothing was asked for
	}
	return m, nil
}

// peers connects n times to a service and lets each say what it is.
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

// hangUp closes connections. What the server thinks of it is of no interest.
func hangUp(all []*peer.Peer) {
	for _, p := range all {
		_ = p.Close()
	}
}

// fresh starts a service on a transport, with some settings more.
func (b *bench) fresh(transport string, settings map[string]string) (t target, stop func(), err error) {
	env := map[string]string{"SLIDEGATE_GRPC_TRANSPORT": transport, "SLIDEGATE_TIERS_SOURCE": "none"}
	maps.Copy(env, settings)
	rls, err := servers.StartRLS(servers.RLSOptions{Binary: b.rls, Rules: rulesWithoutTiers, Env: env})
	if err != nil {
		return t, nil, err
	}
	return target{name: transport, grpc: rls.GRPC(), metrics: rls.Admin() + "/metrics"}, rls.Close, nil
}

// atRest reads what a service holds once it has collected its garbage.
func (b *bench) atRest(ctx context.Context, t target) (reading, error) {
	collect := t.metrics[:len(t.metrics)-len("/metrics")] + "/debug/pprof/heap?gc=1"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, collect, http.NoBody)
	if err != nil {
		return reading{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reading{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return reading{}, err
	}
	return b.read(ctx, t)
}

// idle is connections without calls: such that never had one, and such that had one.
func (b *bench) idle(ctx context.Context, transport string) ([]memoryRow, error) {
	t, stop, err := b.fresh(transport, nil)
	if err != nil {
		return nil, err
	}
	defer stop()
	before, err := b.atRest(ctx, t)
	if err != nil {
		return nil, err
	}
	all, err := peers(ctx, t.grpc, idleConnections)
	defer hangUp(all)
	if err != nil {
		return nil, err
	}
	unused, err := b.atRest(ctx, t)
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
	used, err := b.atRest(ctx, t)
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

// streams opens many streams and has begin send what is to be sent on each.
func (b *bench) streams(ctx context.Context, t target, what string, begin func(*peer.Peer) error) ([]memoryRow, error) {
	all, err := peers(ctx, t.grpc, streamConnections)
	defer hangUp(all)
	if err != nil {
		return nil, err
	}
	before, err := b.atRest(ctx, t) // the connections are not what is measured
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
	after, err := b.atRest(ctx, t)
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
	t, stop, err := b.fresh(transport, nil)
	if err != nil {
		return nil, err
	}
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

// waiting is calls that wait for Redis, which has been told to let everybody wait.
func (b *bench) waiting(ctx context.Context, transport string) ([]memoryRow, error) {
	address, stopRedis, err := servers.RunRedis(ctx, "redis-server")
	if err != nil {
		return nil, err
	}
	defer stopRedis()
	t, stop, err := b.fresh(transport, map[string]string{
		"SLIDEGATE_STORE_TYPE":      "redis",
		"SLIDEGATE_STORE_REDIS_URL": "redis://" + address,
		"SLIDEGATE_STORE_TIMEOUT":   patience.String(),
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: address})
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

// resident is by how many bytes the process has grown for each.
func (r *memoryRow) resident() float64 { return (r.after.resident - r.before.resident) / float64(r.n) }

// live is the same of what is in use, on the heap and on stacks.
func (r *memoryRow) live() float64 { return (r.after.live - r.before.live) / float64(r.n) }

// write writes the result as a Markdown table.
func (m *memory) write(w io.Writer) {
	if m == nil {
		return
	}
	fmt.Fprintln(w, "| connections | of | how many | resident kB each | heap and stacks in use, kB each |\n|---|---|---|---|---|")
	for _, r := range m.rows {
		fmt.Fprintf(w, "| %s | %s | %d | %.1f | %.1f |\n", r.transport, r.what, r.n, r.resident()/1e3, r.live()/1e3)
	}
	fmt.Fprintln(w)
}
