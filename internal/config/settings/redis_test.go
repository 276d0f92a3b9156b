package settings

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/configtest"
)

// TestServers has every form of store.redis.url. Bad ones are in testdata/bad.
func TestServers(t *testing.T) {
	for url, want := range map[URL]RedisServers{
		"redis://h":                   {Addresses: []string{"h:6379"}},
		"REDIS://h:1/":                {Addresses: []string{"h:1"}},
		"redis://10.0.0.1:6380/3":     {Addresses: []string{"10.0.0.1:6380"}, Database: 3},
		"redis://[::1]/3":             {Addresses: []string{"[::1]:6379"}, Database: 3},
		"redis://user:p%2Fw@h:1/2":    {Addresses: []string{"h:1"}, Database: 2, Username: "user", Password: "p/w"},
		"redis://:p@w:x@h":            {Addresses: []string{"h:6379"}, Password: "p@w:x"},
		"rediss://h:6390":             {Addresses: []string{"h:6390"}, TLS: true},
		"unix:///run/redis.sock":      {Socket: "/run/redis.sock"},
		"unix:///run/redis.sock?db=1": {Socket: "/run/redis.sock", Database: 1},
		"unix://u:p@/a%20b":           {Socket: "/a b", Username: "u", Password: "p"},
		"redis-sentinel://h1,h2:26380/main": {
			Topology: RedisSentinel, Addresses: []string{"h1:26379", "h2:26380"}, Master: "main",
		},
		"rediss-sentinel://u:p@h1:26379,[::1]:26379/my%2Fmain/2": {
			Topology: RedisSentinel, TLS: true, Addresses: []string{"h1:26379", "[::1]:26379"}, Master: "my/main",
			Database: 2, Username: "u", Password: "p",
		},
		"redis-cluster://h1,h2:6380,h3": {
			Topology: RedisCluster, Addresses: []string{"h1:6379", "h2:6380", "h3:6379"},
		},
		"rediss-cluster://:p@h1/0": {Topology: RedisCluster, TLS: true, Addresses: []string{"h1:6379"}, Password: "p"},
	} {
		got, err := url.servers()
		if err != nil {
			t.Errorf("%s: %v", url.Reveal(), err)
			continue
		}
		configtest.Diff(t, want, got, "%s", url.Reveal())
		if strings.Contains(fmt.Sprintf("%v %+v", got, got), "p@w") {
			t.Errorf("%s: the password is printed", url.Reveal())
		}
	}
}

func TestServersRefuses(t *testing.T) {
	for _, url := range []URL{
		"", "h:6379", "redis:h", "://h", "redis://", "redis://h:0", "redis://h:65536", "redis://h:", "redis://h:port", "redis://h h",
		"redis://h#1", "redis://[::1", "redis://[h]:1", "redis://[::1]1", "redis://::1", "redis://h/1/2", "redis://h/-1", "redis://h/65536",
		"redis://u:%zz@h", "redis://u:12/3@h", "redis://u:12?3@h", "redis-sentinel://h1,/main", "redis-sentinel:///main",
		"redis-sentinel://h/%zz", "redis-cluster://h,,i", "unix://h/run/s", "unix:///", "unix:///s?db=x", "unix:///s?db=1&db=2", "unix:///s?a;b",
		"redis-sentinel+srv://h",
	} {
		if got, err := url.servers(); err == nil {
			t.Errorf("%q is taken for %+v", url.Reveal(), got)
		}
	}
}

// FuzzURL: whatever a URL is, reading it gives servers or an error, and neither
// shows what may be a password.
func FuzzURL(f *testing.F) {
	f.Add("redis://user:", "@host:1/0")
	f.Add("redis://user:12/", "@host")
	f.Add("redis-sentinel://u:", "@h1,h2/main/0?x=y")
	f.Add("unix://:", "@/run/s?db=1")
	f.Add("redis://h,", ":1@x,y")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hush"
		if strings.Contains(before+after, secret[:1]) {
			return
		}
		u := URL(before + secret + after)
		s, err := u.servers()
		if err == nil && len(s.Addresses) == 0 && s.Socket == "" {
			t.Errorf("%q leads nowhere: %+v", u.Reveal(), s)
		}
		if err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(err.Error(), "twice") {
			t.Errorf("%q: the error shows it: %v", u.Reveal(), err)
		}
		// A password is between the scheme and an @.
		if _, rest, ok := strings.Cut(before, "://"); ok && strings.HasPrefix(rest, "user:") && strings.Contains(after, "@") {
			for _, text := range []string{u.String(), fmt.Sprintf("%+v", s)} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is shown as %s", u.Reveal(), text)
				}
			}
		}
	})
}

func TestReadPassword(t *testing.T) {
	for text, want := range map[string]string{
		"pw":           "pw",
		"pw\n":         "pw",
		" p w \r\n":    " p w ",
		"\n":           "error: is empty",
		"\ufeffpw\r\n": "pw",
		"":             "error: is empty",
		"pw\nx\n":      "error: has more than one line",
	} {
		got, err := ReadPassword(configtest.Write(t, "password", text))
		have := string(got.Reveal())
		if err != nil {
			have = "error: " + err.Error()
		}
		if have != want {
			t.Errorf("%q: got %q, want %q", text, have, want)
		}
	}
}

// pems makes a certificate and its key in files.
func pems(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return configtest.Write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		configtest.Write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

func TestTLSConfig(t *testing.T) {
	cert, key := pems(t)
	_, other := pems(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		tls   TLS
		own   int
		roots bool
		want  string // of the error
	}{
		{TLS{}, 0, false, ""},
		{TLS{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "name"}, 1, true, ""},
		{TLS{CAFile: key}, 0, false, "store.redis.tls.ca_file: " + key + ": holds no certificate in PEM"},
		{TLS{CAFile: nowhere}, 0, false, "store.redis.tls.ca_file: " + nowhere + ": no such file or directory"},
		{TLS{CertFile: cert, KeyFile: nowhere}, 0, false, "store.redis.tls.cert_file: the key " + nowhere + ": no such file or directory"},
		{TLS{CertFile: cert, KeyFile: other}, 0, false, "store.redis.tls.cert_file: " + cert + " and the key " + other + ": private key does not match public key"},
	} {
		got, err := c.tls.Config("store.redis.tls")
		if !loads(t, c.tls, err, c.want) {
			continue
		}
		if len(got.Certificates) != c.own || (got.RootCAs != nil) != c.roots || got.ServerName != c.tls.ServerName || got.InsecureSkipVerify {
			t.Errorf("%+v: got %d certificates, roots %v, name %q", c.tls, len(got.Certificates), got.RootCAs != nil, got.ServerName)
		}
	}
}

// TestRedisFromFilesAndEnvironment takes credentials and certificates as a
// deployment gives them.
func TestRedisFromFilesAndEnvironment(t *testing.T) {
	cert, key := pems(t)
	password := configtest.Write(t, "password", "hush\n")
	got, _, err := Load("", []string{
		"SLIDEGATE_STORE_REDIS_URL=rediss-sentinel://h1,h2/main",
		"SLIDEGATE_STORE_REDIS_USERNAME=rls",
		"SLIDEGATE_STORE_REDIS_PASSWORD_FILE=" + password,
		"SLIDEGATE_STORE_REDIS_SENTINEL_PASSWORD=hush-hush",
		"SLIDEGATE_STORE_REDIS_TLS_CA_FILE=" + cert,
		"SLIDEGATE_STORE_REDIS_TLS_CERT_FILE=" + cert,
		"SLIDEGATE_STORE_REDIS_TLS_KEY_FILE=" + key,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Store.Redis.URL = RedisURL{"rediss-sentinel://h1,h2/main", RedisServers{
		Topology: RedisSentinel, TLS: true, Addresses: []string{"h1:26379", "h2:26379"}, Master: "main",
	}}
	want.Store.Redis.Username = "rls"
	want.Store.Redis.PasswordFile = password
	want.Store.Redis.SentinelPassword = "hush-hush"
	want.Store.Redis.TLS = TLS{CAFile: cert, CertFile: cert, KeyFile: key}
	configtest.Diff(t, want, got, "settings")
	if files := got.Store.Redis.TLS.Files(); len(files) != 3 {
		t.Errorf("files: %v", files)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	_, _, err = Load("", []string{
		"SLIDEGATE_STORE_REDIS_URL=rediss://h",
		"SLIDEGATE_STORE_REDIS_TLS_CERT_FILE=" + cert,
		"SLIDEGATE_STORE_REDIS_TLS_KEY_FILE=" + key,
	})
	if want := "environment: SLIDEGATE_STORE_REDIS_TLS_CERT_FILE: the key " + key + ": no such file or directory\n"; configtest.ProblemsOf(t, err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
