package settings

import (
	"net/url"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
)

// TestPostgresTLS: what counts where the settings do not say it. Bad settings are in
// testdata/bad.
func TestPostgresTLS(t *testing.T) {
	cert, key := pems(t)
	for _, c := range []struct {
		url  URL
		tls  PostgresTLS
		mode string
	}{
		{Default().Tiers.Postgres.URL.URL, PostgresTLS{}, TLSDisable},
		{"postgresql://u@LOCALHOST/db", PostgresTLS{}, TLSDisable},
		{"postgres:///db?host=/run/postgresql", PostgresTLS{}, TLSDisable},
		{"postgres:///db?host=/run/postgresql,db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://[::1]/db", PostgresTLS{Mode: TLSVerifyFull}, TLSVerifyFull},
		{"postgres://db:5433/db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://db/db", PostgresTLS{TLS: TLS{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "other"}}, TLSVerifyFull},
		{"postgres://db1,127.0.0.1/db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://db/db", PostgresTLS{Mode: TLSRequire}, TLSRequire},
		{"postgres://db/db", PostgresTLS{Mode: TLSDisable}, TLSDisable},
	} {
		p := TiersPostgres{URL: PostgresURL{URL: c.url}, TLS: c.tls}
		if err := p.URL.read(); err != nil {
			t.Fatal(err)
		}
		if got := p.TLSMode(); got != c.mode {
			t.Errorf("%s %+v: mode %q, want %q", c.url, c.tls, got, c.mode)
		}
		got, err := p.TLSConfig("tiers.postgres.tls")
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if (got == nil) != (c.mode == TLSDisable) {
			t.Errorf("%s: got %v in mode %s", c.url, got, c.mode)
			continue
		}
		if got == nil {
			continue
		}
		if got.ServerName != c.tls.ServerName || got.InsecureSkipVerify != (c.mode == TLSRequire) || (got.RootCAs != nil) != (c.tls.CAFile != "") || len(got.Certificates) != len(c.tls.Files())/3 {
			t.Errorf("%s %+v: got name %q, verified %v", c.url, c.tls, got.ServerName, !got.InsecureSkipVerify)
		}
	}
	_, err := TiersPostgres{TLS: PostgresTLS{TLS: TLS{CAFile: key}}}.TLSConfig("tiers.postgres.tls")
	if want := "tiers.postgres.tls.ca_file: " + key + ": holds no certificate in PEM"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCredential(t *testing.T) {
	for text, want := range map[string]Credential{
		"header:X-Api-Key": {Kind: CredentialHeader, Name: "x-api-key"},
		"HEADER:key":       {Kind: CredentialHeader, Name: "key"},
		"bearer":           {Kind: CredentialBearer},
		"Basic":            {Kind: CredentialBasic},
		"apikey":           {Kind: CredentialAPIKey},
		"query:api_Key":    {Kind: CredentialQuery, Name: "api_Key"},
		"query:a:b c":      {Kind: CredentialQuery, Name: "a:b c"},
		"cookie:Session":   {Kind: CredentialCookie, Name: "Session"},
	} {
		var got Credential
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		var again Credential
		if err := again.UnmarshalText([]byte(want.String())); err != nil || again != want {
			t.Errorf("%s: its text %s is read as %+v, %v", text, want, again, err)
		}
	}
	for _, text := range []string{"", "header", "x-api-key", "header::authority", "header:Authorization", "query:a\nb", "query:" + strings.Repeat("a", 257), "bearer:", " bearer"} {
		var got Credential
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestLabelHeader(t *testing.T) {
	var got LabelHeader
	want := LabelHeader{Header: "x-region", Label: "re.gi_on-1"}
	if err := got.UnmarshalText([]byte("X-Region=re.gi_on-1")); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "x-region", "=region", "x=", "te=region", "x=a=b", "x=" + strings.Repeat("a", 65)} {
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// TestKeysOverHTTP: API keys themselves are sent over TLS, or to this machine.
func TestKeysOverHTTP(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://tiers.internal/": true, "http://127.0.0.1:80/": true, "http://[::1]/": true, "http://localhost/": true,
		"http://tiers.internal/": false, "http://localhost.example/": false,
	} {
		_, _, err := Load("", []string{"SLIDEGATE_TIERS_HTTP_SEND=key", "SLIDEGATE_TIERS_HTTP_URL=" + url})
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestTiersFromFilesAndEnvironment takes secrets as a deployment gives them.
func TestTiersFromFilesAndEnvironment(t *testing.T) {
	secret := configtest.Write(t, "secret", "0123456789abcdef\n")
	got, _, err := Load("", []string{
		"SLIDEGATE_TIERS_SOURCE=http",
		"SLIDEGATE_TIERS_HTTP_URL=https://host/path",
		"SLIDEGATE_TIERS_HTTP_TOKEN_FILE=" + secret,
		"SLIDEGATE_TIERS_POSTGRES_PASSWORD_FILE=" + secret,
		"SLIDEGATE_SECRETS_KEY=0123456789ABCDEF",
		"SLIDEGATE_SECRETS_PREVIOUS_KEY_FILE=" + secret,
		"SLIDEGATE_AUTHZ_CREDENTIALS=query:key,bearer",
		"SLIDEGATE_AUTHZ_SUBJECT_HEADER=X-Who",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Tiers.Source = TiersOverHTTP
	want.Tiers.HTTP.URL = HTTPURL{"https://host/path", &url.URL{Scheme: "https", Host: "host", Path: "/path"}}
	want.Tiers.HTTP.TokenFile = secret
	want.Tiers.Postgres.PasswordFile = secret
	want.Secrets.Key, want.Secrets.PreviousKey, want.Secrets.PreviousKeyFile = "0123456789ABCDEF", "0123456789abcdef", secret
	want.Authz.Credentials = []Credential{{Kind: CredentialQuery, Name: "key"}, {Kind: CredentialBearer}}
	want.Authz.SubjectHeader = "x-who"
	configtest.Diff(t, want, got, "settings")
	_, _, err = Load("", []string{"SLIDEGATE_SECRETS_KEY_FILE=" + secret, "SLIDEGATE_SECRETS_PREVIOUS_KEY_FILE=" + secret})
	if want := "environment: SLIDEGATE_SECRETS_PREVIOUS_KEY_FILE: is the same as secrets.key_file: set the key that it replaced\n"; configtest.ProblemsOf(t, err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
