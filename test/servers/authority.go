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
	"path/filepath"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// The files in the directory of an authority.
const (
	caFile     = "ca.pem"
	serverCert = "server.pem"
	serverKey  = "server-key.pem"
	clientCert = "client.pem"
	clientKey  = "client-key.pem"
)

// An Authority is a certificate authority in a directory of PEM files. It signs a certificate
// of a server, for localhost and for 127.0.0.1, and one of a client. Only one goroutine may
// call its methods.
type Authority struct {
	dir string
	own *x509.Certificate
	key *ecdsa.PrivateKey
}

// NewAuthority makes one for the time of a test.
func NewAuthority(t process.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	if err := a.Renew(); err != nil {
		t.Fatalf("servers: making certificates: %v", err)
	}
	return a
}

func (a *Authority) file(name string) string { return filepath.Join(a.dir, name) }

// ClientFiles returns the paths of what a client needs: the certificate of the
// authority, and a certificate for the client with its key.
func (a *Authority) ClientFiles() (ca, cert, key string) {
	return a.file(caFile), a.file(clientCert), a.file(clientKey)
}

// ServerFiles returns the paths of what a server needs: the certificate of the
// authority, and a certificate for the server with its key.
func (a *Authority) ServerFiles() (ca, cert, key string) {
	return a.file(caFile), a.file(serverCert), a.file(serverKey)
}

// ClientConfig returns the TLS configuration of a client with the present content of
// the files.
func (a *Authority) ClientConfig() (*tls.Config, error) {
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

// Renew makes a new authority and new certificates. The new authority has not signed
// the earlier certificates.
func (a *Authority) Renew() error {
	a.own = &x509.Certificate{
		Subject:               pkix.Name{CommonName: "Slidegate test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = newCertificate(a.own, a.own, nil); err != nil {
		return err
	}
	if err := a.write(caFile, "CERTIFICATE", a.own.Raw); err != nil {
		return err
	}
	return errors.Join(a.RenewServer(), a.RenewClient())
}

// RenewServer makes a new certificate of the server. more are further uses that it
// allows.
func (a *Authority) RenewServer(more ...x509.ExtKeyUsage) error {
	return a.sign(serverCert, serverKey, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		ExtKeyUsage: append(more, x509.ExtKeyUsageServerAuth),
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// RenewClient makes a new certificate of the client with DNS names.
func (a *Authority) RenewClient(names ...string) error {
	return a.RenewClientUntil(time.Time{}, names...)
}

// RenewClientUntil makes one that expires at a time; zero: in 30 days.
func (a *Authority) RenewClientUntil(end time.Time, names ...string) error {
	return a.sign(clientCert, clientKey, &x509.Certificate{
		NotAfter:    end,
		Subject:     pkix.Name{CommonName: "client"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    names,
	})
}

// Issue signs a certificate with DNS names, for servers and clients, and returns it and its key.
func (a *Authority) Issue(names ...string) (cert, key []byte, err error) {
	const certFile, keyFile = "issued.pem", "issued-key.pem"
	err = a.sign(certFile, keyFile, &x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    names,
	})
	if err != nil {
		return nil, nil, err
	}
	cert, err = os.ReadFile(a.file(certFile))
	if err != nil {
		return nil, nil, err
	}
	key, err = os.ReadFile(a.file(keyFile))
	return cert, key, err
}

// sign writes a certificate and its key.
func (a *Authority) sign(certFile, keyFile string, leaf *x509.Certificate) error {
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := newCertificate(leaf, a.own, a.key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(a.write(certFile, "CERTIFICATE", leaf.Raw), a.write(keyFile, "PRIVATE KEY", der))
}

// newCertificate makes a key for c, signs c with the issuer's key, and replaces c by
// the result. It returns the new key. A nil issuerKey means that c signs itself.
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
	// An hour before now, because clocks may differ. No run takes longer than a month.
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(30 * 24 * time.Hour)
	}
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

// ReplaceFile replaces a file as editors do: it renames a new file over the old one.
func ReplaceFile(path, text string) error {
	fresh := path + ".new"
	return errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, path))
}

// write replaces a file in one step, so that no process reads half of it.
func (a *Authority) write(name, kind string, der []byte) error {
	if err := ReplaceFile(a.file(name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
