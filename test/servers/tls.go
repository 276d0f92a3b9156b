package servers

import (
	"os/exec"
	"strings"

	"github.com/slidegate/slidegate/test/process"
)

// StartRedisTLS starts a redis-server that accepts only TLS, has a certificate for
// localhost and 127.0.0.1, and requires certificates of its clients. An authority of
// its own signs all certificates; see TLSFiles. args are further options, as those
// of StartRedis. It skips the test if the server was built without TLS.
func StartRedisTLS(t process.TB, args ...string) *RedisServer {
	t.Helper()
	if path := redisPath(t, ""); withoutTLS(t, path) {
		t.Skipf("servers: %s was built without TLS", path)
		return nil
	}
	a := NewAuthority(t)
	s := newRedis(t, "", append([]string{
		"--port", "0",
		"--tls-port", portArgument,
		"--tls-auth-clients", "yes",
		"--tls-ca-cert-file", a.file(caFile),
		"--tls-cert-file", a.file(serverCert),
		"--tls-key-file", a.file(serverKey),
	}, args...)...)
	s.tls = a
	if err := s.launch(); err != nil {
		t.Fatalf("servers: starting %s with TLS: %v", s.path, err)
	}
	return s
}

// withoutTLS reports whether a redis-server was built without TLS. It starts one
// with TLS and without a certificate. That one ends in any case and prints why.
func withoutTLS(t process.TB, path string) bool {
	out, _ := exec.CommandContext(t.Context(), path, "--port", "0", "--tls-port", "1").CombinedOutput()
	text := string(out)
	return strings.Contains(text, "'tls-port \"1\"'\nBad directive") || // up to Redis 7.0
		strings.Contains(text, "Failed finding TLS support")
}

// TLSFiles returns the paths of the PEM files for a client: the certificate of the
// authority, and a certificate for the client with its key. They are empty for a
// server without TLS.
func (s *RedisServer) TLSFiles() (ca, cert, key string) {
	if s.tls == nil {
		return "", "", ""
	}
	return s.tls.ClientFiles()
}

// RenewTLS replaces the authority and the certificates of client and server, and
// makes the server use them from the next handshake on. A client with the old files
// is refused. It needs Redis 7.
func (s *RedisServer) RenewTLS() {
	s.t.Helper()
	if s.tls == nil {
		s.t.Fatalf("servers: renewing the certificates of a server without TLS")
		return
	}
	// The connection that changes the server's files needs the old certificates.
	old, err := s.tls.ClientConfig()
	if err == nil {
		err = s.tls.Renew()
	}
	if err != nil {
		s.t.Fatalf("servers: renewing certificates: %v", err)
	}
	_, err = s.doTLS(old, process.Timeout, "CONFIG", "SET",
		"tls-ca-cert-file", s.tls.file(caFile),
		"tls-cert-file", s.tls.file(serverCert),
		"tls-key-file", s.tls.file(serverKey))
	if err != nil {
		s.t.Fatalf("servers: renewing certificates: %v", err)
	}
}
