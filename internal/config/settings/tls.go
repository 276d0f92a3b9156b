package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// ServerTLS is the certificate of a listener, and the certificates that clients must have.
// There is TLS if there is a certificate.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file" doc:"the server's certificate (PEM), then the intermediate ones. Every host:port then accepts only TLS; unix sockets stay plain text. New connections use a changed file. Empty: no TLS"`
	KeyFile      string `yaml:"key_file" doc:"the key (PEM, not encrypted) of cert_file"`
	ClientCAFile string `yaml:"client_ca_file" doc:"CA certificates (PEM): clients must present a certificate that one of them signed, or one of the file. Empty: clients need no certificate"`
	ClientSAN    string `yaml:"client_san" doc:"the DNS name or IP address that a client's certificate must have. Empty: any"`
	UnixSockets  bool   `yaml:"-"` // unix sockets accept only TLS too. Only a drop-in sets it
}

// Covers reports whether a listener at the address accepts only TLS.
func (t ServerTLS) Covers(a Address) bool { return t.On() && (t.UnixSockets || !a.IsSocket()) }

// On reports whether there is TLS.
func (t ServerTLS) On() bool { return t.CertFile != "" }

// Files are the files that are set.
func (t ServerTLS) Files() []string { return notEmpty(t.CertFile, t.KeyFile, t.ClientCAFile) }

// Config reads the files. Errors name the setting, of which setting is the section,
// and the file.
func (t ServerTLS) Config(setting string) (*tls.Config, error) {
	cert, err := readPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s.cert_file: %w", setting, err)
	}
	clients, err := readAuthorities(t.ClientCAFile, nil)
	if err != nil {
		return nil, fmt.Errorf("%s.client_ca_file: %w", setting, err)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: suitesOfHTTP2,
		NextProtos:   []string{"h2"},
		Certificates: cert,
		// A resumed session shows no certificates. So it would outlive a change of the files.
		SessionTicketsDisabled: true,
	}
	if clients != nil {
		c.ClientCAs, c.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	if t.ClientSAN != "" {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.VerifiedChains) == 0 {
				return errors.New("the client's certificate is not verified")
			}
			return s.VerifiedChains[0][0].VerifyHostname(t.ClientSAN)
		}
	}
	return c, nil
}

// suitesOfHTTP2 are those of TLS 1.2 that RFC 9113, appendix A, does not forbid.
// TLS 1.3 has no others.
var suitesOfHTTP2 = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// maxCertFile bounds a file of certificates, in bytes. A bundle of all public CAs has a quarter
// of that.
const maxCertFile = 1 << 20

func notEmpty(files ...string) []string {
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

// readAuthorities reads certificates to trust, and adds them to pool. A nil pool is an empty
// one. It returns nil if no file is set.
func readAuthorities(file string, pool *x509.CertPool) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := files.Read(file, maxCertFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strict.Quoteless(file), err)
	}
	if pool == nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", strict.Quoteless(file))
	}
	return pool, nil
}

// readPair reads a certificate and its key. It returns nil if one of the files is
// not set.
func readPair(certFile, keyFile string) ([]tls.Certificate, error) {
	if certFile == "" || keyFile == "" {
		return nil, nil
	}
	cert, err := files.Read(certFile, maxCertFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strict.Quoteless(certFile), err)
	}
	key, err := files.Read(keyFile, maxCertFile)
	if err != nil {
		return nil, fmt.Errorf("the key %s: %w", strict.Quoteless(keyFile), err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		// The error says what is wrong with a block of PEM, without its content.
		return nil, fmt.Errorf("%s and the key %s: %s", strict.Quoteless(certFile), strict.Quoteless(keyFile), strings.TrimPrefix(err.Error(), "tls: "))
	}
	return []tls.Certificate{pair}, nil
}

func (l *settingsLoader) pair(path, certFile, keyFile string) {
	switch {
	case certFile != "" && keyFile == "":
		l.problem(path+".cert_file", "%s.key_file is needed too", path)
	case certFile == "" && keyFile != "":
		l.problem(path+".key_file", "%s.cert_file is needed too", path)
	default:
		if _, err := readPair(certFile, keyFile); err != nil {
			l.problem(path+".cert_file", "%s", err)
		}
	}
}

func (l *settingsLoader) serverTLS() {
	const path = "grpc.tls"
	t := l.settings.GRPC.TLS
	l.pair(path, t.CertFile, t.KeyFile)
	if _, err := readAuthorities(t.ClientCAFile, nil); err != nil {
		l.problem(path+".client_ca_file", "%s", err)
	} else if t.ClientCAFile != "" && t.CertFile == "" {
		l.problem(path+".client_ca_file", "there is no TLS: %s.cert_file is not set", path)
	}
	switch host := strings.ToLower(strings.TrimPrefix(t.ClientSAN, "*.")); {
	case t.ClientSAN == "":
	case t.ClientCAFile == "":
		l.problem(path+".client_san", "clients need no certificate: %s.client_ca_file is not set", path)
	case net.ParseIP(host) == nil && !hostName.MatchString(host):
		l.problem(path+".client_san", "%s is neither a DNS name nor an IP address", strict.Quote(t.ClientSAN))
	}
	if t.On() && !slices.ContainsFunc(l.settings.GRPC.Address, t.Covers) {
		l.problem(path+".cert_file", "there is no TLS: grpc.address has only unix sockets, which are plain text")
	}
}
