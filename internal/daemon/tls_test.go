package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// secure sets TLS with client certificates of an authority.
func secure(s *settings.Settings, a *servers.Authority) {
	files := &s.GRPC.TLS
	files.ClientCAFile, files.CertFile, files.KeyFile = a.ServerFiles()
}

// trusting returns the TLS configuration of a client of the authority.
func trusting(t *testing.T, a *servers.Authority) *tls.Config {
	t.Helper()
	c, err := a.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// healthy asks for health over a connection of its own.
func healthy(t *testing.T, address string, secure credentials.TransportCredentials) error {
	t.Helper()
	conn := dial(t, address, grpc.WithTransportCredentials(secure))
	defer conn.Close()
	return asks(t, conn)
}

func asks(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// TestTLS connects with and without TLS, with good and bad certificates.
func TestTLS(t *testing.T) { onEachTransport(t, testTLS) }

func testTLS(t *testing.T, s settings.Settings) {
	a, stranger := servers.NewAuthority(t), servers.NewAuthority(t)
	secure(&s, a)
	s.GRPC.Address = append(s.GRPC.Address, settings.Address("unix://"+filepath.Join(t.TempDir(), "rls.sock")))
	r := start(t, s)
	tcp, socket := r.GRPC[0], r.GRPC[1]

	_, cert, key := a.ServerFiles()
	ofServer, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change  func(*tls.Config)
		refused bool
	}{
		"a client of the authority":   {func(*tls.Config) {}, false},
		"the same with TLS 1.2":       {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, false},
		"no certificate":              {func(c *tls.Config) { c.Certificates = nil }, true},
		"a certificate of a stranger": {func(c *tls.Config) { c.Certificates = trusting(t, stranger).Certificates }, true},
		"a certificate for servers":   {func(c *tls.Config) { c.Certificates = []tls.Certificate{ofServer} }, true},
		"TLS 1.1":                     {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, true},
		"a cipher that HTTP/2 forbids": {func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
		}, true},
		"a client that trusts a stranger": {func(c *tls.Config) { c.RootCAs = trusting(t, stranger).RootCAs }, true},
	} {
		own := trusting(t, a)
		c.change(own)
		if err := healthy(t, tcp, credentials.NewTLS(own)); (status.Code(err) == codes.Unavailable) != c.refused || (err == nil) == c.refused {
			t.Errorf("%s: got %v, want refused: %v", what, err, c.refused)
		}
	}
	if err := healthy(t, tcp, insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Errorf("plain text over TCP: got %v, want %v", err, codes.Unavailable)
	}
	if err := healthy(t, socket, insecure.NewCredentials()); err != nil {
		t.Errorf("plain text on the socket: %v", err)
	}
	if err := healthy(t, socket, credentials.NewTLS(trusting(t, a))); status.Code(err) != codes.Unavailable {
		t.Errorf("TLS on the socket: got %v, want %v", err, codes.Unavailable)
	}
	// A client with another protocol on top of TLS, or without ALPN.
	for _, protocol := range []string{"", "http/1.1"} {
		own := trusting(t, a)
		if protocol != "" {
			own.NextProtos = []string{protocol}
		}
		conn, err := (&tls.Dialer{Config: own}).DialContext(t.Context(), "tcp", tcp)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("application protocol %q: got %v, want the connection closed", protocol, err)
		}
	}
	waitFor(t, "a log line with the reason of a refusal", func() bool {
		return slices.ContainsFunc(r.logs.FilterLevelExact(zap.DebugLevel).All(), func(e observer.LoggedEntry) bool {
			return strings.Contains(fmt.Sprint(e.ContextMap()), "client didn't provide a certificate")
		})
	})
}

// TestTLSOnSockets proves that dropin.unix_sockets_tls makes unix sockets accept only TLS.
func TestTLSOnSockets(t *testing.T) { onEachTransport(t, testTLSOnSockets) }

func testTLSOnSockets(t *testing.T, s settings.Settings) {
	a, stranger := servers.NewAuthority(t), servers.NewAuthority(t)
	secure(&s, a)
	s.GRPC.TLS.UnixSockets = true
	s.GRPC.Address = append(s.GRPC.Address, settings.Address("unix://"+filepath.Join(t.TempDir(), "rls.sock")))
	r := start(t, s)
	for _, address := range r.GRPC {
		if err := healthy(t, address, credentials.NewTLS(trusting(t, a))); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		for what, c := range map[string]credentials.TransportCredentials{
			"plain text": insecure.NewCredentials(),
			"a stranger": credentials.NewTLS(trusting(t, stranger)),
		} {
			if err := healthy(t, address, c); status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %s: got %v, want %v", address, what, err, codes.Unavailable)
			}
		}
	}
}

// TestClientSAN proves that with grpc.tls.client_san only certificates with the name are
// accepted, also after the certificates have changed.
func TestClientSAN(t *testing.T) { onEachTransport(t, testClientSAN) }

func testClientSAN(t *testing.T, s settings.Settings) {
	a, stranger := servers.NewAuthority(t), servers.NewAuthority(t)
	secure(&s, a)
	s.GRPC.TLS.ClientSAN = "envoy.edge.example"
	r := start(t, s)
	if err := stranger.RenewClient("envoy.edge.example"); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for _, c := range []struct {
			names   []string
			refused bool
		}{
			{nil, true},
			{[]string{"other.edge.example"}, true},
			{[]string{"edge.example"}, true},
			{[]string{"*.example"}, true},
			{[]string{"a.envoy.edge.example"}, true},
			{[]string{"envoy.edge.example"}, false},
			{[]string{"other.example", "ENVOY.edge.example"}, false},
			{[]string{"*.edge.example"}, false},
		} {
			if err := a.RenewClient(c.names...); err != nil {
				t.Fatal(err)
			}
			err := healthy(t, r.GRPC[0], credentials.NewTLS(trusting(t, a)))
			if (status.Code(err) == codes.Unavailable) != c.refused || (err == nil) == c.refused {
				t.Errorf("round %d: names %q: got %v, want refused: %v", round, c.names, err, c.refused)
			}
		}
		own := trusting(t, a)
		own.Certificates = trusting(t, stranger).Certificates
		if err := healthy(t, r.GRPC[0], credentials.NewTLS(own)); status.Code(err) != codes.Unavailable {
			t.Errorf("round %d: the name in a certificate of a stranger: got %v", round, err)
		}
		if err := a.Renew(); err != nil { // new files, the same name
			t.Fatal(err)
		}
	}
	waitFor(t, "a log line with the reason of a refusal", func() bool {
		return slices.ContainsFunc(r.logs.FilterLevelExact(zap.DebugLevel).All(), func(e observer.LoggedEntry) bool {
			return strings.Contains(fmt.Sprint(e.ContextMap()), "not envoy.edge.example")
		})
	})
}

// TestTLSWithoutClientCertificates proves that without grpc.tls.client_ca_file clients
// need no certificate.
func TestTLSWithoutClientCertificates(t *testing.T) {
	onEachTransport(t, testTLSWithoutClientCertificates)
}

func testTLSWithoutClientCertificates(t *testing.T, s settings.Settings) {
	a := servers.NewAuthority(t)
	secure(&s, a)
	s.GRPC.TLS.ClientCAFile = ""
	r := start(t, s)
	own := trusting(t, a)
	own.Certificates = nil
	if err := healthy(t, r.GRPC[0], credentials.NewTLS(own)); err != nil {
		t.Error(err)
	}
}

// TestServerTLSThatChanges renews every certificate under a running service.
func TestServerTLSThatChanges(t *testing.T) { onEachTransport(t, testServerTLSThatChanges) }

func testServerTLSThatChanges(t *testing.T, s settings.Settings) {
	const changed, broken = "a file for connections has changed and counts for new ones", "a file for connections cannot be read; its old content stays in use; correct the file"
	a := servers.NewAuthority(t)
	secure(&s, a)
	r := start(t, s)
	before := trusting(t, a)
	before.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	live := dial(t, r.GRPC[0], grpc.WithTransportCredentials(credentials.NewTLS(before)))
	if err := asks(t, live); err != nil {
		t.Fatal(err)
	}

	if err := a.Renew(); err != nil {
		t.Fatal(err)
	}
	if err := healthy(t, r.GRPC[0], credentials.NewTLS(trusting(t, a))); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
	if got := r.logs.FilterMessage(changed).Len(); got != 1 {
		t.Errorf("%d lines say that the files have changed, want 1", got)
	}
	// This client trusts any server, and resumes an earlier session.
	before.InsecureSkipVerify = true
	if err := healthy(t, r.GRPC[0], credentials.NewTLS(before)); status.Code(err) != codes.Unavailable {
		t.Errorf("a client of the old authority: got %v, want %v", err, codes.Unavailable)
	}
	if err := asks(t, live); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
	if state := live.GetState(); state != connectivity.Ready {
		t.Errorf("the connection from before is %v", state)
	}

	// A renewal that stops half-way, twice looked at: one line.
	write(t, s.GRPC.TLS.KeyFile, "torn")
	good := trusting(t, a)
	for range 2 {
		if err := healthy(t, r.GRPC[0], credentials.NewTLS(good)); err != nil {
			t.Errorf("with a torn key: %v", err)
		}
	}
	lines := r.logs.FilterMessage(broken).All()
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["error"]), "grpc.tls.cert_file: ") {
		t.Errorf("the log says %v, want one line that names the setting", lines)
	}
	if err := a.RenewServer(); err != nil {
		t.Fatal(err)
	}
	want, err := tls.LoadX509KeyPair(s.GRPC.TLS.CertFile, s.GRPC.TLS.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	good.NextProtos = []string{"h2"}
	if got := handshake(t, r.GRPC[0], good).ConnectionState().PeerCertificates[0]; !got.Equal(want.Leaf) {
		t.Errorf("certificate %v is shown, want %v", got.SerialNumber, want.Leaf.SerialNumber)
	}
}

// TestTLSResumesNothing connects twice with a session cache. The server resumes no session, so
// it checks the certificate of every connection.
func TestTLSResumesNothing(t *testing.T) { onEachTransport(t, testTLSResumesNothing) }

func testTLSResumesNothing(t *testing.T, s settings.Settings) {
	a := servers.NewAuthority(t)
	secure(&s, a)
	r := start(t, s)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		own := trusting(t, a)
		own.MinVersion, own.MaxVersion, own.NextProtos = version, version, []string{"h2"}
		own.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		for range 2 {
			conn := handshake(t, r.GRPC[0], own)
			// A ticket of TLS 1.3 would come before anything else.
			if _, err := greet(t, conn).ReadFrame(); err != nil {
				t.Errorf("%x: %v", version, err)
			}
			if conn.ConnectionState().DidResume {
				t.Errorf("%x: a session was taken up again", version)
			}
		}
	}
}

// handshake returns a TLS connection that is closed when the test ends.
func handshake(t *testing.T, address string, c *tls.Config) *tls.Conn {
	t.Helper()
	conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*tls.Conn)
}

// greet sends the preface of an HTTP/2 client.
func greet(t *testing.T, conn net.Conn) *http2.Framer {
	t.Helper()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return framer
}
