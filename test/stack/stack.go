package stack

import (
	"maps"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// A Setup says what a stack is made of. The zero value is rls with its built-in rules, without tiers.
type Setup struct {
	Rules string
	Tiers string // empty: no tiers, every key has its own log
	Env   map[string]string
	// Config is Envoy's; empty: EdgeConfig. Change has further changes of its text.
	Config string
	Change map[string]string
	// Upstream is the application; empty: one that records.
	Upstream string
	// TLS has the certificates of rls; nil: no TLS.
	TLS *servers.Authority
	// Way is how Envoy gets to rls; empty: as the environment says.
	Way edge.Way
}

// A Stack is an application, rls and Envoy in front of both.
type Stack struct {
	T     *testing.T
	App   *Application
	RLS   *edge.RLSServer
	Envoy *edge.EnvoyServer
	// Others are further instances of rls behind the same Envoy.
	Others []*edge.RLSServer
}

// Serve starts rls with the rules of s.
func (s Setup) Serve(t *testing.T) *edge.RLSServer {
	t.Helper()
	env := maps.Clone(s.Env)
	if env == nil {
		env = make(map[string]string)
	}
	if s.Tiers == "" && env[EnvTiersSource] == "" {
		env[EnvTiersSource] = "none"
	}
	return edge.RLS(t, edge.RLSOptions{Rules: s.Rules, Tiers: s.Tiers, Env: env, TLS: s.TLS, Way: s.Way})
}

// Start starts the whole stack.
func (s Setup) Start(t *testing.T) *Stack {
	t.Helper()
	st := &Stack{T: t, App: NewApplication(t), RLS: s.Serve(t)}
	s.StartEnvoy(st)
	return st
}

// StartEnvoy puts an Envoy before the application and rls of st.
func (s Setup) StartEnvoy(st *Stack) {
	st.T.Helper()
	if s.Upstream == "" {
		s.Upstream = st.App.Addr
	}
	if s.Config == "" {
		s.Config = EdgeConfig
	}
	changes := PatientEnvoy(st.T, s.Config)
	o := edge.EnvoyOptions{Config: s.Config, Upstream: s.Upstream, RLS: Endpoint(st.RLS), Replace: changes}
	for _, other := range st.Others {
		o.Others = append(o.Others, Endpoint(other))
	}
	if s.TLS == nil && st.RLS.Authority() != nil {
		o.TLS = st.RLS.Authority()
	}
	maps.Copy(changes, s.Change)
	st.Envoy = edge.Envoy(st.T, o)
}

// Endpoint is where Envoy finds an rls.
func Endpoint(rls *edge.RLSServer) string { return strings.TrimPrefix(rls.GRPC(), "unix://") }

// Stat returns one of Envoy's counters.
func (s *Stack) Stat(name string) uint64 {
	s.T.Helper()
	n, err := s.Envoy.Stat(name)
	if err != nil {
		s.T.Fatal(err)
	}
	return n
}

// WantAllDecided fails the test if Envoy let a request pass because rls did not
// answer. The counts of the test would then be wrong.
func (s *Stack) WantAllDecided() {
	s.T.Helper()
	if n := s.Stat("cluster.upstream.ratelimit.error"); n != 0 {
		s.T.Errorf("Envoy got no decision for %d requests, want one for each", n)
	}
}

// Get sends a request from 127.0.0.1; see Client.Get.
func (s *Stack) Get(path string, header ...string) Answer {
	s.T.Helper()
	return s.From("127.0.0.1").Get(path, header...)
}

// From returns a client that calls from an address of the loopback network.
func (s *Stack) From(address string) *Client {
	s.T.Helper()
	return NewClient(s.T, s.Envoy.URL(), address)
}

// Clients returns n clients that call from 127.0.0.1.
func (s *Stack) Clients(n int) []*Client {
	s.T.Helper()
	all := make([]*Client, n)
	for i := range all {
		all[i] = s.From("127.0.0.1")
	}
	return all
}

// Peek returns how much remains of each descriptor, without charging. A request of cost 0 would
// make the costs of the rule usage updates.
func (s *Stack) Peek(descriptors ...string) []uint32 {
	s.T.Helper()
	_, out := PostJSON(s.T, s.RLS.HTTP(), Refund(0, descriptors...))
	var remaining []uint32
	for _, st := range out.GetStatuses() {
		remaining = append(remaining, st.GetLimitRemaining())
	}
	return remaining
}
