package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// NoEviction is the only maxmemory-policy with which a server keeps every log. Logs
// have an expiry, so the volatile policies evict them too.
const NoEviction = "noeviction"

// policyInterval is the time from a connection until the policies are read. So they are
// read at most once in this time.
const policyInterval = time.Second

// errNoPolicy says that the answer of a server has no policy.
var errNoPolicy = errors.New("INFO memory has no field maxmemory_policy")

// Connected notes that the client of the store has made a connection. The store then reads
// the maxmemory-policy of every server in the background, because a server may have another
// configuration, or may be another one. Connected returns at once. The client may call it
// while it makes the connection, for instance by [redis.Options.OnConnect].
func (s *Store) Connected() {
	if s.life.stopped.Err() != nil || !s.connected.CompareAndSwap(false, true) {
		return
	}
	// After the interval the connection can be used, and one reading serves all connections made together.
	s.background(func() {
		if s.pause(policyInterval) {
			s.connected.Store(false)
			s.readPolicy()
		}
	})
}

// readPolicy reads the policy of every server. It tries again after an error, except for a
// server whose breaker is open: its next connection starts another reading.
func (s *Store) readPolicy() {
	ctx, cancel := context.WithTimeout(s.life.stopped, max(s.opts.Timeout, probeTimeout))
	defer cancel()
	var err error
	if s.cluster != nil {
		err = s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return s.nodeOf(c).readPolicy(ctx) })
	} else {
		err = s.single.readPolicy(ctx)
	}
	if err != nil {
		s.Connected()
	}
}

// readPolicy reads the server's policy, and calls Options.Policy if it has changed.
func (n *node) readPolicy(ctx context.Context) error {
	// CONFIG GET needs a permission that managed services do not grant.
	cmd := redis.NewStringCmd(ctx, "info", "memory")
	err := n.client.Process(ctx, cmd)
	if err != nil && failure.Classify(err) != failure.Permission {
		if n.open.Load() {
			return nil
		}
		return err
	}
	_, policy, found := strings.Cut(cmd.Val(), "maxmemory_policy:")
	policy, _, _ = strings.Cut(policy, "\r")
	if err == nil && !found {
		err = errNoPolicy
	}
	if before := n.policy.Swap(&policy); before == nil || *before != policy {
		n.store.opts.Policy(n.address, policy, err)
	}
	return nil
}
