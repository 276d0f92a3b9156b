package edge

import (
	"context"
	"crypto/tls"
	"maps"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	// envTransport and envListen name the variables that choose the way to an rls
	// whose test chooses none.
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

// A Way is how Envoy and tests reach an rls.
type Way struct {
	Transport string // Unary or Standard; empty: rls's own default
	Listen    string // TCP, Unix or TLS; empty: TCP
}

// String names a subtest.
func (w Way) String() string { return w.Transport + " over " + w.Listen }

// Ways returns all ways, or those that the environment variables
// SLIDEGATE_TEST_TRANSPORT and SLIDEGATE_TEST_LISTEN choose.
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

// chosen returns the value of the variable if it is set, else all.
func chosen(variable string, all ...string) []string {
	if v := os.Getenv(variable); v != "" {
		return []string{v}
	}
	return all
}

// withWay returns o with the settings of its way. Settings in Env and TLS take
// precedence.
func (o RLSOptions) withWay(t process.TB) RLSOptions {
	t.Helper()
	env := maps.Clone(o.Env)
	if env == nil {
		env = make(map[string]string)
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
		env[envGRPCAddress] = unixScheme + filepath.Join(SocketDir(t), "grpc.sock")
	case TLS:
		withPorts(env, envGRPCAddress)
		if o.TLS == nil {
			o.TLS = servers.NewAuthority(t)
		}
	default:
		t.Fatalf("edge: a test or %s says %q, want one of %q", envListen, listen, []string{TCP, Unix, TLS})
	}
	return o
}

// The ports of rls are below the other servers' ports, and rls gets them in turn. So a
// stopped rls finds its own port free again.
const firstRLSPort, lastRLSPort = 4000, process.FirstPort - 1

var rlsPorts atomic.Uint32

func init() { rlsPorts.Store(mrand.Uint32N(lastRLSPort)) } // other test binaries run at the same time

// withPorts adds addresses with free ports to settings without an address.
func withPorts(env map[string]string, settings ...string) {
	for _, setting := range settings {
		if _, set := env[setting]; set {
			continue
		}
		port := 0
		for range lastRLSPort - firstRLSPort + 1 {
			port = firstRLSPort + int(rlsPorts.Add(1)%(lastRLSPort-firstRLSPort+1))
			if process.TryPort(port) == nil {
				break
			}
		}
		env[setting] = process.Address(port)
	}
}

// SocketDir returns a folder for a socket, for the time of the test. The path of a
// socket has a bound, which t.TempDir may exceed.
func SocketDir(t process.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		t.Fatalf("edge: %v", err)
	}
	// If removing fails, temporary files are left.
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Connect opens a connection to the address of GRPC. If rls uses TLS, the handshake
// has chosen HTTP/2.
func (s *RLSServer) Connect(ctx context.Context) (net.Conn, error) {
	network, address := "tcp", s.GRPC()
	if path, isPath := strings.CutPrefix(address, unixScheme); isPath {
		network, address = "unix", path
	}
	if !s.secured() {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	c, err := s.options.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	c.NextProtos, c.ServerName = []string{"h2"}, "localhost"
	return (&tls.Dialer{Config: c}).DialContext(ctx, network, address)
}

// secured reports whether the address of GRPC accepts only TLS.
func (s *RLSServer) secured() bool {
	return s.options.TLS != nil && (!strings.HasPrefix(s.GRPC(), unixScheme) || s.options.Env["GRPC_SERVER_USE_TLS"] == "true")
}

// Authority returns the authority of the certificates of rls, nil without TLS.
func (s *RLSServer) Authority() *servers.Authority { return s.options.TLS }

// rlsCluster is the beginning of the rate-limit service's cluster in the files of
// envoy/.
const rlsCluster = "\n  - name: rls\n"

// withCluster changes the cluster of the rate-limit service to what RLS, TLS and
// Others say.
func (o EnvoyOptions) withCluster(text string) (string, error) {
	before, cluster, found := strings.Cut(text, rlsCluster)
	if !found {
		return text, nil
	}
	// Envoy accepts a socket only in a cluster without DNS.
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
		// The added line end is for a file whose last line is the address.
		if cluster, err = replaceOne(cluster+"\n", []string{first}, all); err != nil {
			return "", err
		}
	}
	return before + rlsCluster + secure + cluster, nil
}

// transportSocket is the part of a cluster for TLS with an Authority.
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
