package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// StartRedisTLS starts a redis-server that speaks nothing but TLS, has a
// certificate for localhost and 127.0.0.1, and wants one of its clients. All
// certificates are of an authority of its own; see TLSFiles. args are further
// options, as those of StartRedis. It skips the test if the server was built
// without TLS.
func StartRedisTLS(t TB, args ...string) *RedisServer {
	t.Helper()
	if path := redisPath(t); withoutTLS(t, path) {
		t.Skipf("servers: %s was built without TLS", path)
		return nil
	}
	a := &authority{dir: t.TempDir()}
	if err := a.renew(); err != nil {
		t.Fatalf("servers: making certificates: %v", err)
	}
	s := newRedis(t, append([]string{
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

// withoutTLS says whether a redis-server was built without TLS. It is asked to
// serve nothing but TLS and has no certificate for it, so it ends in any case and
// says why.
func withoutTLS(t TB, path string) bool {
	out, _ := exec.CommandContext(t.Context(), path, "--port", "0", "--tls-port", "1").CombinedOutput()
	text := string(out)
	return strings.Contains(text, "'tls-port \"1\"'\nBad directive") || // up to Redis 7.0
		strings.Contains(text, "Failed finding TLS support")
}

// TLSFiles returns the paths of what a client needs, as PEM: the certificate of
// the authority, and a certificate for the client with its key. They are empty
// for a server without TLS.
func (s *RedisServer) TLSFiles() (ca, cert, key string) {
	if s.tls == nil {
		return "", "", ""
	}
	return s.tls.file(caFile), s.tls.file(clientCert), s.tls.file(clientKey)
}

// RenewTLS puts a new authority, a new certificate of the client and one of the
// server into the files of TLSFiles, and has the server use them from the next
// handshake on: who still has the old ones is refused. It needs Redis 7.
func (s *RedisServer) RenewTLS() {
	s.t.Helper()
	if s.tls == nil {
		s.t.Fatalf("servers: renewing the certificates of a server without TLS")
		return
	}
	// The connection that tells the server of the new files needs the old ones.
	old, err := s.tls.clientConfig()
	if err == nil {
		err = s.tls.renew()
	}
	if err != nil {
		s.t.Fatalf("servers: renewing certificates: %v", err)
	}
	_, err = s.doTLS(old, startTimeout, "CONFIG", "SET",
		"tls-ca-cert-file", s.tls.file(caFile),
		"tls-cert-file", s.tls.file(serverCert),
		"tls-key-file", s.tls.file(serverKey))
	if err != nil {
		s.t.Fatalf("servers: renewing certificates: %v", err)
	}
}

// The files in the directory of an authority.
const (
	caFile     = "ca.pem"
	serverCert = "server.pem"
	serverKey  = "server-key.pem"
	clientCert = "client.pem"
	clientKey  = "client-key.pem"
)

// authority is a certificate authority, with what it has signed, in a directory.
type authority struct{ dir string }

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// clientConfig is the TLS configuration of a client that uses the files.
func (a *authority) clientConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(a.file(caFile))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("no certificate in " + a.file(caFile))
	}
	cert, err := tls.LoadX509KeyPair(a.file(clientCert), a.file(clientKey))
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}, nil
}

// renew makes a new authority and new certificates.
func (a *authority) renew() error {
	ca := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Slidegate test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key, err := newCertificate(ca, ca, nil)
	if err != nil {
		return err
	}
	if err := a.write(caFile, "CERTIFICATE", ca.Raw); err != nil {
		return err
	}
	for _, c := range []struct {
		name, cert, key string
		usage           x509.ExtKeyUsage
	}{
		{"localhost", serverCert, serverKey, x509.ExtKeyUsageServerAuth},
		{"client", clientCert, clientKey, x509.ExtKeyUsageClientAuth},
	} {
		leaf := &x509.Certificate{
			Subject:     pkix.Name{CommonName: c.name},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{c.usage},
		}
		if c.usage == x509.ExtKeyUsageServerAuth {
			leaf.DNSNames = []string{"localhost"}
			leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		}
		leafKey, err := newCertificate(leaf, ca, key)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(leafKey)
		if err != nil {
			return err
		}
		if err := errors.Join(a.write(c.cert, "CERTIFICATE", leaf.Raw), a.write(c.key, "PRIVATE KEY", der)); err != nil {
			return err
		}
	}
	return nil
}

// newCertificate signs c with the key of its issuer, or with its own if there is
// none, replaces c by the result, and returns the new key of c.
func newCertificate(c, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if issuerKey == nil {
		issuerKey = key
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	// An hour on both sides: no test takes longer, and clocks may differ.
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return nil, err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	*c = *signed
	return key, nil
}

// write replaces a file in one step, so that nobody reads half of it.
func (a *authority) write(name, kind string, der []byte) error {
	if err := replaceFile(a.file(name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
