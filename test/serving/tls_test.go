package serving

import (
	"crypto/x509"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	envMaxConnectionAge = "SLIDEGATE_GRPC_MAX_CONNECTION_AGE"
)

// TestEnvoyOverTLS runs the configuration for TLS: both sides show a certificate,
// health checks included. Limits work as without TLS.
func TestEnvoyOverTLS(t *testing.T) { eachTransport(t, testEnvoyOverTLS) }

func testEnvoyOverTLS(t *testing.T, way edge.Way) {
	a := servers.NewAuthority(t)
	s := stack.Setup{Rules: stack.ThreeKinds, Config: stack.TLSConfig, Change: stack.TrustingEnvoy(a), TLS: a, Way: way}.Start(t)
	c := s.From("127.0.0.1")
	c.Want(200, 3, "/", "x-api-key", "k")
	c.Want(429, 1, "/", "x-api-key", "k")
	c.Want(200, 2, "/login")
	c.Want(429, 1, "/login")
	s.WantAllDecided()
	if n := s.Stat("cluster.rls.ssl.handshake"); n == 0 {
		t.Error("Envoy has made no handshake")
	}
}

// TestEnvoyOverTLSOnASocket has TLS on a unix socket, and a name that Envoy's certificate must
// have.
func TestEnvoyOverTLSOnASocket(t *testing.T) { eachTransport(t, testEnvoyOverTLSOnASocket) }

func testEnvoyOverTLSOnASocket(t *testing.T, way edge.Way) {
	for name, c := range map[string]struct {
		names []string
		after int // the answer beyond the limit
	}{
		"the name":     {[]string{"envoy.example"}, http.StatusTooManyRequests},
		"another name": {[]string{"other.example"}, http.StatusOK}, // rls refuses Envoy, which lets requests pass
	} {
		t.Run(name, func(t *testing.T) {
			a := servers.NewAuthority(t)
			if err := a.RenewClient("envoy.example"); err != nil {
				t.Fatal(err)
			}
			st := stack.Setup{Rules: stack.ThreeKinds, Config: stack.TLSConfig, Change: stack.TrustingEnvoy(a), TLS: a, Way: way, Env: map[string]string{
				stack.EnvGRPCAddress:            "unix://" + filepath.Join(edge.SocketDir(t), "grpc.sock"),
				"SLIDEGATE_GRPC_TLS_CLIENT_SAN": "envoy.example",
				// As in envoyproxy/ratelimit, sockets have TLS too.
				"GRPC_SERVER_USE_TLS": "true", "GRPC_UDS": "/grpc.sock",
			}}
			stack.AsDropIn(st.Env)
			s := &stack.Stack{T: t, App: stack.NewApplication(t), RLS: st.Serve(t)}
			if err := a.RenewClient(c.names...); err != nil {
				t.Fatal(err)
			}
			if c.after == http.StatusOK {
				changes := stack.TrustingEnvoy(a)
				maps.Copy(changes, stack.PatientEnvoy(t, stack.TLSConfig))
				changes["socket_address: {address: rls, port_value: 8081}"] = "pipe: {path: " + stack.Endpoint(s.RLS) + "}"
				changes["- name: rls\n    type: STRICT_DNS"] = "- name: rls\n    type: STATIC"
				s.Envoy = edge.Envoy(t, edge.EnvoyOptions{Config: stack.TLSConfig, Upstream: s.App.Addr, Replace: changes})
			} else {
				st.StartEnvoy(s)
			}
			from := s.From("127.0.0.1")
			from.Want(200, 2, "/login")
			from.Want(c.after, 1, "/login")
			if n := s.Stat("cluster.rls.ssl.handshake"); n == 0 {
				t.Error("Envoy has made no handshake")
			}
		})
	}
}

// TestEnvoyIsRefused has certificates that one side refuses. For Envoy that is an rls
// without an answer, so Envoy's failure mode decides.
func TestEnvoyIsRefused(t *testing.T) { eachTransport(t, testEnvoyIsRefused) }

func testEnvoyIsRefused(t *testing.T, way edge.Way) {
	for name, c := range map[string]struct {
		change func(t *testing.T, changes map[string]string)
		stat   string // of Envoy's, that says why
	}{
		"no certificate": {func(t *testing.T, changes map[string]string) {
			t.Helper()
			text := tree.Text(t, stack.TLSConfig)
			_, rest, ok := strings.Cut(text, "          tls_certificates:\n")
			certificates, _, ok2 := strings.Cut(rest, "          validation_context:\n")
			if !ok || !ok2 {
				t.Fatalf("%s has no certificate", stack.TLSConfig)
			}
			delete(changes, stack.EnvoyCert)
			delete(changes, stack.EnvoyKey)
			changes["          tls_certificates:\n"+certificates] = ""
		}, "connection_error"},
		"a stranger's certificate": {func(t *testing.T, changes map[string]string) {
			t.Helper()
			_, changes[stack.EnvoyCert], changes[stack.EnvoyKey] = servers.NewAuthority(t).ClientFiles()
		}, "connection_error"},
		"an authority that has not signed that of rls": {func(t *testing.T, changes map[string]string) {
			t.Helper()
			changes[stack.EnvoyCA], _, _ = servers.NewAuthority(t).ClientFiles()
		}, "fail_verify_error"},
		"another name": {func(_ *testing.T, changes map[string]string) {
			delete(changes, "matcher: {exact: rls}")
		}, "fail_verify_san"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := servers.NewAuthority(t)
			rls := stack.Setup{Rules: stack.PerKey, TLS: a, Way: way}.Serve(t)
			for deny, want := range map[string]int{"false": http.StatusOK, "true": http.StatusInternalServerError} {
				changes := stack.TrustingEnvoy(a)
				maps.Copy(changes, stack.PatientEnvoy(t, stack.TLSConfig))
				changes["failure_mode_deny: false"] = "failure_mode_deny: " + deny
				c.change(t, changes)
				host, port, _ := strings.Cut(rls.GRPC(), ":")
				changes["address: rls, port_value: 8081"] = "address: " + host + ", port_value: " + port
				// RLS is not named, for it will never be healthy.
				app := stack.NewApplication(t)
				envoy := edge.Envoy(t, edge.EnvoyOptions{Config: stack.TLSConfig, Upstream: app.Addr, Replace: changes})
				s := &stack.Stack{T: t, App: app, RLS: rls, Envoy: envoy}
				s.From("127.0.0.1").Want(want, 2, "/", "x-api-key", "k")
				if n := s.Stat("cluster.upstream.ratelimit.error"); n != 2 {
					t.Errorf("failure_mode_deny %s: requests without a decision: got %d, want 2", deny, n)
				}
				if n := s.Stat("cluster.rls.ssl." + c.stat); n == 0 {
					t.Errorf("failure_mode_deny %s: Envoy has not counted %s", deny, c.stat)
				}
				if n := s.Stat("cluster.rls.membership_healthy"); n != 0 {
					t.Errorf("failure_mode_deny %s: Envoy takes rls for healthy", deny)
				}
			}
			if n := stack.Metric(t, rls, `slidegate_rpc_seconds_count{code="OK",method="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}`); n != "" && n != "0" {
				t.Errorf("rls has answered %s questions, want none", n)
			}
		})
	}
}

// TestCertificateRenewed renews the certificate of rls under load. Old connections go
// on, and new ones get the new certificate.
func TestCertificateRenewed(t *testing.T) { eachTransport(t, testCertificateRenewed) }

func testCertificateRenewed(t *testing.T, way edge.Way) {
	a := servers.NewAuthority(t)
	s := stack.Setup{
		Rules: stack.PerKey, Config: stack.TLSConfig, Change: stack.TrustingEnvoy(a), TLS: a, Way: way,
		Env: map[string]string{envMaxConnectionAge: "1s"},
	}.Start(t)
	shown := func() *x509.Certificate {
		t.Helper()
		conn, err := s.RLS.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var p peer.Peer
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), stack.Request(0, "api_key=k"), grpc.Peer(&p)); err != nil {
			t.Fatal(err)
		}
		return p.AuthInfo.(grpccredentials.TLSInfo).State.PeerCertificates[0]
	}
	first := shown()
	ask := func() { s.Get("/", "x-api-key", "k") }
	ask()
	if err := a.RenewServer(); err != nil {
		t.Fatal(err)
	}
	ask()
	if shown().Equal(first) {
		t.Error("a new connection is shown the old certificate")
	}
	before := s.Stat("cluster.rls.ssl.handshake")
	process.Eventually(t, "Envoy to connect anew", func() bool {
		ask()
		return s.Stat("cluster.rls.ssl.handshake") > before
	})
	ask()
	s.WantAllDecided()
}

// TestHealthcheckOverTLS runs the command healthcheck against an rls with TLS.
func TestHealthcheckOverTLS(t *testing.T) { eachTransport(t, testHealthcheckOverTLS) }

func testHealthcheckOverTLS(t *testing.T, way edge.Way) {
	a := servers.NewAuthority(t)
	dir := edge.SocketDir(t)
	rls := edge.RLS(t, edge.RLSOptions{TLS: a, Way: way, Env: map[string]string{
		stack.EnvGRPCAddress: "127.0.0.1:0,unix://" + filepath.Join(dir, "grpc.sock"),
	}})
	tcp := edge.RLSOptions{TLS: a, Env: map[string]string{stack.EnvGRPCAddress: rls.GRPC()}}
	both := edge.RLSOptions{TLS: a, Env: map[string]string{stack.EnvGRPCAddress: rls.GRPC() + ",unix://" + filepath.Join(dir, "grpc.sock")}}

	if got := edge.Run(t, both, "", "healthcheck"); got.Code != 0 {
		t.Errorf("beside a socket: got exit code %d and %q, want 0", got.Code, got.Stderr)
	}
	// The certificate is one of servers alone, and clients must show theirs.
	if got := edge.Run(t, tcp, "", "healthcheck"); got.Code != 1 || !strings.Contains(got.Stderr, "valid for clients") {
		t.Errorf("with a certificate for servers: got exit code %d and %q, want 1 and what to do", got.Code, got.Stderr)
	}
	if err := a.RenewServer(x509.ExtKeyUsageClientAuth); err != nil {
		t.Fatal(err)
	}
	if got := edge.Run(t, tcp, "", "healthcheck"); got.Code != 0 {
		t.Errorf("with a certificate for both: got exit code %d and %q, want 0", got.Code, got.Stderr)
	}
	stack.AsDropIn(both.Env)
	both.Env["SLIDEGATE_RULES_PATH"], both.Env["GRPC_SERVER_USE_TLS"], both.Env["GRPC_UDS"] = "x", "true", "/grpc.sock"
	if got := edge.Run(t, both, "", "healthcheck"); got.Code != 0 {
		t.Errorf("of an rls whose sockets have TLS too: got exit code %d and %q, want 0", got.Code, got.Stderr)
	}
	if err := a.RenewServer(); err != nil {
		t.Fatal(err)
	}
	tcp.Env["SLIDEGATE_GRPC_TLS_CLIENT_SAN"] = "other.example"
	if got := edge.Run(t, tcp, "", "healthcheck"); got.Code != 1 || !strings.Contains(got.Stderr, "have the name grpc.tls.client_san") {
		t.Errorf("with a name for clients: got exit code %d and %q, want 1 and what to do", got.Code, got.Stderr)
	}
	rls.Kill()
	if got := edge.Run(t, tcp, "", "healthcheck"); got.Code != 1 || !strings.Contains(got.Stderr, "nothing listens on "+rls.GRPC()) {
		t.Errorf("of one that is gone: got exit code %d and %q, want 1", got.Code, got.Stderr)
	}
}
