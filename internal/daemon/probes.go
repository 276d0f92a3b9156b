package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/glance"
)

// A storeState is the last known state of the servers of a store.
type storeState struct {
	Nodes []glance.Server // by address; of one that is not known to fail, Reason is empty
	// Reached says that a server has answered since the start.
	Reached bool
	// Scope is the name of the scope, if it is one of Further.
	Scope string
	// Further has the states of the other scopes.
	Further []storeState
}

// all returns the servers of all scopes. Addresses of servers in other scopes begin with the scope.
func (s storeState) all() []glance.Server {
	nodes := slices.Clip(s.Nodes)
	for _, f := range s.Further {
		for _, n := range f.Nodes {
			n.Address = f.Scope + " " + n.Address
			nodes = append(nodes, n)
		}
	}
	return nodes
}

type probes struct {
	store    string            // its type
	ready    string            // the setting http.ready
	state    func() storeState // nil: the memory store
	tiers    func() string     // returns the empty string without a source
	rules    func() string     // of an xDS server; nil: rules are from files
	draining atomic.Bool

	needsRules, needsStore bool        // of the drop-in
	domains                func() int  // the number of domains of the active rules
	connected              func() bool // there is a connection to the store; nil: not known
	plain                  bool        // the body is OK alone, as that of envoyproxy/ratelimit
}

// whyUnhealthy returns why /healthcheck answers 500 and the health of gRPC is NOT_SERVING. It
// is empty if neither is so.
func (p *probes) whyUnhealthy() string {
	switch {
	case p.needsRules && p.domains() == 0:
		return "no rules are loaded"
	case !p.needsStore:
		return ""
	}
	if why := p.storeUnavailable(); why != "" {
		return why
	}
	if p.connected != nil && !p.connected() {
		return "there is no connection to the store"
	}
	return ""
}

// healthcheck answers 200, or 500 if a state that a drop-in looks at is there. The body has the state
// of the store and of the customer source.
func (p *probes) healthcheck(w http.ResponseWriter, _ *http.Request) {
	unhealthy := p.whyUnhealthy()
	if p.plain && unhealthy == "" {
		admin.WriteText(w, http.StatusOK, "OK")
		return
	}
	code, text := http.StatusOK, "OK\n" // probes compare the first line
	if unhealthy != "" {
		code, text = http.StatusInternalServerError, "unhealthy: "+unhealthy+"\n"
	}
	text += "store: " + p.storeText() + "\n"
	if p.state != nil {
		for _, s := range p.state().all() {
			if s.Evicts != "" {
				text += fmt.Sprintf("warning: %s has the maxmemory-policy %s: when its memory is full, it evicts logs, which resets their limits; set noeviction\n", s.Address, s.Evicts)
			}
		}
	}
	if tiers := p.tiers(); tiers != "" {
		text += "tiers: " + tiers + "\n"
	}
	if p.rules != nil {
		text += "rules: " + p.rules() + "\n"
	}
	admin.WriteText(w, code, text)
}

func (p *probes) storeText() string {
	if p.state == nil {
		return p.store
	}
	state := p.state()
	text := p.store + ", " + state.text()
	for _, f := range state.Further {
		text += "; scope " + f.Scope + ": " + f.text()
	}
	return text
}

func (s storeState) text() string {
	var failing []string
	for _, n := range s.Nodes {
		if n.Reason != "" {
			failing = append(failing, fmt.Sprintf("%s (%s)", n.Address, n.Reason))
		}
	}
	text := fmt.Sprintf("%d of %d nodes decide", len(s.Nodes)-len(failing), len(s.Nodes))
	switch {
	case len(failing) > 0:
		return text + "; degraded: " + strings.Join(failing, ", ")
	case !s.Reached:
		return "not reached yet"
	}
	return text
}

// readyz answers 200 if this instance wants requests. Otherwise it answers 503 with the
// reason.
func (p *probes) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if why := p.notReady(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "not ready: %s\n", why)
		return
	}
	fmt.Fprintln(w, "ready")
}

// notReady returns why this instance wants no requests, or the empty string if it does.
func (p *probes) notReady() string {
	if p.draining.Load() {
		return "draining"
	}
	if p.ready == settings.ReadyAlways {
		return ""
	}
	return p.storeUnavailable()
}

// storeUnavailable returns why the store of the region decides no request, or the empty string if it
// decides some. The memory store always does. Other scopes do not count: while one is unavailable, the
// limits of the region are still decided.
func (p *probes) storeUnavailable() string {
	if p.state == nil {
		return ""
	}
	state := p.state()
	switch {
	case !state.Reached:
		return "the store has not been reached yet"
	case !slices.ContainsFunc(state.Nodes, func(s glance.Server) bool { return s.Reason == "" }):
		return "no node of the store decides"
	default:
		return ""
	}
}
