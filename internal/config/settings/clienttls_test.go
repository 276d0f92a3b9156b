package settings

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/configtest"
)

// issue returns a certificate that parent signs. A nil parent signs itself.
func issue(t *testing.T, c x509.Certificate, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	signer := &tls.Certificate{Leaf: &c, PrivateKey: key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, signer.Leaf, key.Public(), signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func authority(t *testing.T, name string, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	return issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, parent)
}

func caFileOf(t *testing.T, c tls.Certificate) string {
	t.Helper()
	return configtest.Write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})))
}

// shake makes a handshake of a client with a server, and reports whether the session was
// resumed.
func shake(t *testing.T, server, client *tls.Config) (resumed bool, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		theirs, err := l.Accept()
		if err != nil {
			return
		}
		defer theirs.Close()
		conn := tls.Server(theirs, server)
		if conn.Handshake() == nil {
			_, _ = conn.Write([]byte("x")) // after the ticket
			_, _ = conn.Read(make([]byte, 1))
		}
	}()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
	conn := tls.Client(ours, client)
	if err := conn.Handshake(); err != nil {
		return false, err
	}
	_, err = conn.Read(make([]byte, 1))
	return conn.ConnectionState().DidResume, err
}

// TestAnyName proves that dropin.redis_any_name accepts a certificate of another name, and no certificate of
// another authority, for another use, or that has expired. This holds for resumed sessions too.
func TestAnyName(t *testing.T) {
	root, stranger, third := authority(t, "root", nil), authority(t, "stranger", nil), authority(t, "third", nil)
	between := authority(t, "between", &root)
	server := x509.Certificate{DNSNames: []string{"other.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	forClients := x509.Certificate{DNSNames: []string{"other.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	expired := server
	expired.NotAfter = time.Now().Add(-time.Minute)
	chain := issue(t, server, &between)
	chain.Certificate = append(chain.Certificate, between.Certificate[0])
	t.Setenv("SSL_CERT_FILE", caFileOf(t, stranger)) // the system's
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	for _, c := range []struct {
		name    string
		cert    tls.Certificate
		tls     TLS
		refused bool
	}{
		{"another name", issue(t, server, &root), TLS{CAFile: caFileOf(t, root), AnyName: true}, false},
		{"another name, verified", issue(t, server, &root), TLS{CAFile: caFileOf(t, root)}, true},
		{"another name behind another authority", chain, TLS{CAFile: caFileOf(t, root), AnyName: true}, false},
		{"that authority is not sent", issue(t, server, &between), TLS{CAFile: caFileOf(t, root), AnyName: true}, true},
		{"a stranger", issue(t, server, &third), TLS{CAFile: caFileOf(t, root), AnyName: true}, true},
		{"self-signed", issue(t, server, nil), TLS{CAFile: caFileOf(t, root), AnyName: true}, true},
		{"for clients", issue(t, forClients, &root), TLS{CAFile: caFileOf(t, root), AnyName: true}, true},
		{"expired", issue(t, expired, &root), TLS{CAFile: caFileOf(t, root), AnyName: true}, true},
		{"the system's, and the file's", issue(t, server, &root), TLS{CAFile: caFileOf(t, root), AnyName: true}, false},
		{"the system's", issue(t, server, &stranger), TLS{CAFile: caFileOf(t, root), AnyName: true}, false},
		{"the system's, verified", issue(t, server, &stranger), TLS{CAFile: caFileOf(t, root), ServerName: "other.example"}, false},
		{"the system's, with another name", issue(t, server, &stranger), TLS{CAFile: caFileOf(t, root)}, true},
		{"the system's without a file", issue(t, server, &stranger), TLS{AnyName: true}, false},
		{"not the system's without a file", issue(t, server, &root), TLS{AnyName: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := c.tls.Config("x")
			if err != nil {
				t.Fatal(err)
			}
			if client.ServerName == "" {
				client.ServerName = "localhost"
			}
			client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			at := &tls.Config{Certificates: []tls.Certificate{c.cert}}
			for n := range 2 {
				resumed, err := shake(t, at, client)
				if (err != nil) != c.refused {
					t.Fatalf("handshake %d: %v, want refused: %v", n, err, c.refused)
				}
				var untrusted *tls.CertificateVerificationError
				if c.refused && !errors.As(err, &untrusted) {
					t.Errorf("handshake %d: %v, want a CertificateVerificationError", n, err)
				}
				if !c.refused && resumed != (n == 1) {
					t.Errorf("handshake %d: resumed: %v", n, resumed)
				}
			}
		})
	}
}

// TestAnyNameOfASessionThatIsNoLongerTrusted resumes a session after the roots have changed.
func TestAnyNameOfASessionThatIsNoLongerTrusted(t *testing.T) {
	root, stranger := authority(t, "root", nil), authority(t, "stranger", nil)
	cert := issue(t, x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, &root)
	server, sessions := &tls.Config{Certificates: []tls.Certificate{cert}}, tls.NewLRUClientSessionCache(1)
	for n, ca := range []tls.Certificate{root, stranger} {
		client, err := TLS{CAFile: caFileOf(t, ca), AnyName: true}.Config("x")
		if err != nil {
			t.Fatal(err)
		}
		client.ServerName, client.ClientSessionCache = "localhost", sessions
		if _, err := shake(t, server, client); (err != nil) != (n == 1) {
			t.Errorf("with authority %d: %v", n, err)
		}
	}
}

// TestClientTLSConfig has a switch.
func TestClientTLSConfig(t *testing.T) {
	cert, _ := pems(t)
	for _, c := range []struct {
		tls      ClientTLS
		want, ok bool
	}{
		{ClientTLS{}, false, true},
		{ClientTLS{TLS: TLS{CAFile: "nowhere"}}, false, true},
		{ClientTLS{Enabled: true}, true, true},
		{ClientTLS{Enabled: true, TLS: TLS{CAFile: cert}}, true, true},
		{ClientTLS{Enabled: true, TLS: TLS{CAFile: filepath.Join(t.TempDir(), "nowhere")}}, false, false},
	} {
		got, err := c.tls.Config("compare.tls")
		if (got != nil) != c.want || (err == nil) != c.ok {
			t.Errorf("%+v: got %v, %v", c.tls, got, err)
		}
	}
}

// TestPostgresTLSRequire verifies nothing, whatever else is set.
func TestPostgresTLSRequire(t *testing.T) {
	p := Default().Tiers.Postgres
	p.TLS.AnyName = true
	for mode, chain := range map[string]bool{TLSRequire: false, TLSVerifyFull: true} {
		p.TLS.Mode = mode
		c, err := p.TLSConfig("tiers.postgres.tls")
		if err != nil {
			t.Fatal(err)
		}
		if !c.InsecureSkipVerify || (c.VerifyConnection != nil) != chain {
			t.Errorf("%s: verifies the chain: %v, want %v", mode, c.VerifyConnection != nil, chain)
		}
	}
}
