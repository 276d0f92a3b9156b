package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/config"
)

// A nodeState is what is known of one server of the store.
type nodeState struct {
	Name string
	// Reason is why it does not decide; empty: it does, as far as is known.
	Reason string
}

// nodes keeps what is known of the servers of a store in Redis. It is safe for
// concurrent use. A nil one is of a store in memory: it has no servers, and is
// always there.
type nodes struct {
	// list names the servers that there are.
	list func() []string

	reached atomic.Bool
	mu      sync.Mutex
	away    map[string]string // why, by name
}

// newNodes takes a URL that is valid.
func newNodes(url config.URL) *nodes {
	name := "cluster"
	switch servers, _ := url.Servers(); {
	case servers.Socket != "":
		name = servers.Socket
	case servers.Topology == config.RedisSentinel:
		name = "master " + servers.Master
	case servers.Topology == config.RedisSingle:
		name = strings.Join(servers.Addresses, ",")
	}
	return &nodes{list: func() []string { return []string{name} }, away: make(map[string]string)}
}

// reach records that a server has answered.
func (n *nodes) reach() {
	if n != nil && !n.reached.Load() {
		n.reached.Store(true)
	}
}

// isReached reports whether a server has ever answered.
func (n *nodes) isReached() bool { return n == nil || n.reached.Load() }

// set records why a server does not decide, or with an empty reason that it does.
func (n *nodes) set(name, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if reason == "" {
		delete(n.away, name)
	} else {
		n.away[name] = reason
	}
}

// all is set for every server.
func (n *nodes) all(reason string) {
	if n == nil {
		return
	}
	for _, name := range n.list() {
		n.set(name, reason)
	}
}

// state returns the servers in the order of their names. One that has gone is
// left out.
func (n *nodes) state() []nodeState {
	if n == nil {
		return nil
	}
	names := n.list()
	slices.Sort(names)
	n.mu.Lock()
	defer n.mu.Unlock()
	states := make([]nodeState, len(names))
	for i, name := range names {
		states[i] = nodeState{name, n.away[name]}
	}
	maps.DeleteFunc(n.away, func(name, _ string) bool { return !slices.Contains(names, name) })
	return states
}

// reason says in a word why a store could not decide.
func reason(err error) string {
	var dial *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "connect"
	default:
		return "error"
	}
}

// probes are the pages for those who look after the process.
type probes struct {
	store    string // its type
	ready    string // the setting
	nodes    *nodes // nil: in memory
	draining atomic.Bool
}

// healthcheck is 200 while the process can answer, whatever the store does. The
// first line is for machines and never changes.
func (p *probes) healthcheck(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "OK\nstore: %s\n", p.storeState())
}

func (p *probes) storeState() string {
	if p.nodes == nil {
		return p.store
	}
	states := p.nodes.state()
	var away []string
	for _, s := range states {
		if s.Reason != "" {
			away = append(away, fmt.Sprintf("%s (%s)", s.Name, s.Reason))
		}
	}
	switch {
	case len(away) > 0:
		return fmt.Sprintf("%s, %d of %d nodes decide; degraded: %s", p.store, len(states)-len(away), len(states), strings.Join(away, ", "))
	case !p.nodes.isReached():
		return p.store + ", not reached yet"
	default:
		return fmt.Sprintf("%s, %d of %d nodes decide", p.store, len(states), len(states))
	}
}

// readyz is 200 if the process wants requests, and 503 if they had better go to
// another.
func (p *probes) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if why := p.notReady(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "not ready: %s\n", why)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (p *probes) notReady() string {
	switch {
	case p.draining.Load():
		return "draining"
	case p.ready == config.ReadyAlways || p.nodes == nil:
		return ""
	case !p.nodes.isReached():
		return "the store has not been reached yet"
	case !slices.ContainsFunc(p.nodes.state(), func(s nodeState) bool { return s.Reason == "" }):
		return "no node of the store decides"
	default:
		return ""
	}
}
