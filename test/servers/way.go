package servers

import (
	"context"
	"crypto/tls"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	// envTransport and envListen name the variables that say which way goes to an
	// rls whose test leaves it open.
	envTransport = "SLIDEGATE_TEST_TRANSPORT"
	envListen    = "SLIDEGATE_TEST_LISTEN"
)

// The parts of a Way.
const (
	Unary    = "unary"
	Standard = "standard"

	TCP  = "tcp"
	Unix = "unix"
	TLS  = "tls"
)

// A Way is how Envoy, and a test, get to an rls.
type Way struct {
	Transport string // Unary or Standard; empty: rls's own default
	Listen    string // TCP, Unix or TLS; empty: TCP
}

// String names a subtest.
func (w Way) String() string { return w.Transport + " over " + w.Listen }

// Ways returns all ways, or those that the environment chooses: with
// SLIDEGATE_TEST_TRANSPORT and SLIDEGATE_TEST_LISTEN a run of all tests is one
// about one way.
func Ways() []Way {
	var ways []Way
	for _, transport := range Transports() {
		for _, listen := range chosen(envListen, TCP, Unix, TLS) {
			ways = append(ways, Way{transport, listen})
		}
	}
	return ways
}

// Transports returns both transports, or the one that the environment chooses.
func Transports() []string { return chosen(envTransport, Unary, Standard) }

// chosen returns what the variable says, else all.
func chosen(variable string, all ...string) []string {
	if v := os.Getenv(variable); v != "" {
		return []string{v}
	}
	return all
}

// going returns o with everything that its way needs. What a test has said by
// itself, in Env or TLS, stays.
func (o RLSOptions) going(t testing.TB) RLSOptions {
	t.Helper()
	env := make(map[string]string, len(o.Env)+2)
	for name, value := range o.Env {
		env[name] = value
	}
	if o.Way.Transport == "" {
		o.Way.Transport = os.Getenv(envTransport)
	}
	if o.Way.Transport != "" && env[envGRPCTransport] == "" {
		env[envGRPCTransport] = o.Way.Transport
	}
	o.Env = env
	withPorts(env, envHTTPAddress, envAdminAddress)
	if env[envGRPCAddress] != "" {
		return o
	}
	listen := o.Way.Listen
	if listen == "" && o.TLS == nil {
		listen = os.Getenv(envListen)
	}
	switch listen {
	case "", TCP:
		withPorts(env, envGRPCAddress)
	case Unix:
		env[envGRPCAddress] = unixScheme + filepath.Join(socketDir(t), "grpc.sock")
	case TLS:
		withPorts(env, envGRPCAddress)
		if o.TLS == nil {
			o.TLS = NewAuthority(t)
		}
	default:
		t.Fatalf("servers: a test or %s says %q, want one of %q", envListen, listen, []string{TCP, Unix, TLS})
	}
	return o
}

// The ports of rls are below those of redis-server and those that the kernel gives to
// clients, and one after the other: an rls that is stopped finds its own again.
const firstRLSPort, lastRLSPort = 4000, firstPort - 1

var rlsPorts atomic.Uint32

func init() { rlsPorts.Store(mrand.Uint32N(lastRLSPort)) } // other processes have begun too

// withPorts gives free ports to the settings that have no address.
func withPorts(env map[string]string, settings ...string) {
	for _, setting := range settings {
		if _, set := env[setting]; set {
			continue
		}
		port := 0
		for range lastRLSPort - firstRLSPort + 1 {
			port = firstRLSPort + int(rlsPorts.Add(1)%(lastRLSPort-firstRLSPort+1))
			if tryPort(port) == nil {
				break
			}
		}
		env[setting] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
}

// socketDir returns a directory for a socket, whose path has a bound that t.TempDir
// may be beyond.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rls") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Connect opens a bare connection to the address of GRPC. Where that speaks TLS,
// HTTP/2 has been agreed on.
func (s *RLSServer) Connect(ctx context.Context) (net.Conn, error) {
	path, isPath := strings.CutPrefix(s.GRPC(), unixScheme)
	switch {
	case isPath:
		return new(net.Dialer).DialContext(ctx, "unix", path)
	case s.options.TLS == nil:
		return new(net.Dialer).DialContext(ctx, "tcp", s.GRPC())
	}
	c, err := s.options.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	c.NextProtos = []string{"h2"}
	return (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", s.GRPC())
}

// Authority is whose certificates rls uses on its TCP ports, nil without TLS.
func (s *RLSServer) Authority() *Authority { return s.options.TLS }

// rlsCluster is where the cluster of the rate-limit service begins in the files of
// envoy/.
const rlsCluster = "\n  - name: rls\n"

// reach changes the cluster of the rate-limit service as the way to it wants.
func (o EnvoyOptions) reach(text string) (string, error) {
	before, cluster, found := strings.Cut(text, rlsCluster)
	if !found {
		return text, nil
	}
	// Envoy looks for sockets only where it does not ask for names.
	if strings.HasPrefix(o.RLS, "/") {
		cluster = strings.Replace(cluster, "type: STRICT_DNS", "type: STATIC", 1)
	}
	secure := ""
	if o.TLS != nil {
		ca, cert, key := o.TLS.ClientFiles()
		secure = strings.NewReplacer("CA", ca, "CERT", cert, "KEY", key).Replace(transportSocket)
	}
	if len(o.Others) > 0 {
		first := "        - endpoint:\n            address:\n              " + endpoint(o.RLS) + "\n"
		all := first
		for _, other := range o.Others {
			all += strings.Replace(first, endpoint(o.RLS), endpoint(other), 1)
		}
		var err error
		// With an end, for the address may be the last line of the file.
		if cluster, err = replaceOne(cluster+"\n", []string{first}, all); err != nil {
			return "", err
		}
	}
	return before + rlsCluster + secure + cluster, nil
}

// transportSocket is what a cluster needs for TLS with an Authority.
const transportSocket = `    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context:
          alpn_protocols: [h2]
          tls_certificates: [{certificate_chain: {filename: "CERT"}, private_key: {filename: "KEY"}}]
          validation_context:
            trusted_ca: {filename: "CA"}
            match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: localhost}}]
`
