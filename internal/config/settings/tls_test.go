package settings

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
)

// TestServerTLS takes certificates as a deployment gives them. Bad settings are in
// testdata/bad.
func TestServerTLS(t *testing.T) {
	cert, key := pems(t)
	_, other := pems(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		tls     ServerTLS
		clients tls.ClientAuthType
		want    string // of the error
	}{
		{ServerTLS{CertFile: cert, KeyFile: key}, tls.NoClientCert, ""},
		{ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: cert}, tls.RequireAndVerifyClientCert, ""},
		{ServerTLS{CertFile: nowhere, KeyFile: key}, 0, "grpc.tls.cert_file: " + nowhere + ": no such file or directory"},
		{ServerTLS{CertFile: cert, KeyFile: nowhere}, 0, "grpc.tls.cert_file: the key " + nowhere + ": no such file or directory"},
		{ServerTLS{CertFile: cert, KeyFile: other}, 0, "grpc.tls.cert_file: " + cert + " and the key " + other + ": private key does not match public key"},
		{ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: key}, 0, "grpc.tls.client_ca_file: " + key + ": holds no certificate in PEM"},
		{ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: nowhere}, 0, "grpc.tls.client_ca_file: " + nowhere + ": no such file or directory"},
	} {
		settings, _, loadErr := Load("", []string{
			"SLIDEGATE_GRPC_TLS_CERT_FILE=" + c.tls.CertFile,
			"SLIDEGATE_GRPC_TLS_KEY_FILE=" + c.tls.KeyFile,
			"SLIDEGATE_GRPC_TLS_CLIENT_CA_FILE=" + c.tls.ClientCAFile,
		})
		configtest.Diff(t, c.tls, settings.GRPC.TLS, "settings")
		// What a start refuses, a reading of changed files does.
		if (loadErr == nil) != (c.want == "") {
			t.Errorf("%+v: settings: %v", c.tls, loadErr)
		}
		got, err := c.tls.Config("grpc.tls")
		if !loads(t, c.tls, err, c.want) {
			continue
		}
		if len(got.Certificates) != 1 || got.ClientAuth != c.clients || (got.ClientCAs != nil) != (c.clients != 0) || got.MinVersion != tls.VersionTLS12 {
			t.Errorf("%+v: got %d certificates, clients %v of %v, version %x", c.tls, len(got.Certificates), got.ClientAuth, got.ClientCAs, got.MinVersion)
		}
	}
}

// loads compares the error of TLS settings with the one that is wanted. It reports whether there is none.
func loads(t *testing.T, settings any, err error, want string) bool {
	t.Helper()
	if want == "" && err != nil || want != "" && fmt.Sprint(err) != want {
		t.Errorf("%+v: got %v, want %q", settings, err, want)
	}
	return err == nil
}
