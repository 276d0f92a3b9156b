package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// NoEviction is the only maxmemory-policy with which a server keeps every log. Logs
// have an expiry, so the volatile policies evict them too.
const NoEviction = "noeviction"

// policyInterval is how long after a connection the policies of servers are read, and
// so how often at most.
const policyInterval = time.Second

// errNoPolicy says that a server does not tell its policy.
var errNoPolicy = errors.New("INFO memory has no field maxmemory_policy")

// Connected tells the store that its client has made a connection. The store then
// reads the maxmemory-policy of every server, in the background: a server may have
// been configured anew, or be another one. It returns at once and may be called while
// a connection is made, for instance by [redis.Options].OnConnect.
func (s *Store) Connected() {
	if s.stopped.Err() != nil {
		return
	}
	select {
	case s.connected <- struct{}{}:
	default: // there is a connection already that was not looked at
	}
	s.reading.Do(func() { s.background(s.readPolicies) })
}

// readPolicies reads the policies after each connection: somewhat later, so that the
// connection is there to be used, and others that are made with it need no look of
// their own.
func (s *Store) readPolicies() {
	for {
		select {
		case <-s.connected:
		case <-s.stopped.Done():
			return
		}
		if !s.pause(policyInterval) {
			return
		}
		s.readPolicy()
	}
}

// readPolicy reads the policy of every server. What fails is tried again, unless the
// server is not asked at all: then its next connection is the reason to read it.
func (s *Store) readPolicy() {
	ctx, cancel := context.WithTimeout(s.stopped, max(s.opts.Timeout, probeTimeout))
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

// readPolicy reads the server's policy and tells of it if it has changed.
func (n *node) readPolicy(ctx context.Context) error {
	// CONFIG GET would need a right that managed services do not grant.
	cmd := redis.NewStringCmd(ctx, "info", "memory")
	err := n.client.Process(ctx, cmd)
	if err != nil && classify(err) != ClassPermission {
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
