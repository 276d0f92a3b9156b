package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		{Default().Tiers.Postgres.URL, PostgresTLS{}, TLSDisable},
		{"postgresql://u@LOCALHOST/db", PostgresTLS{}, TLSDisable},
		{"postgres:///db?host=/run/postgresql", PostgresTLS{}, TLSDisable},
		{"postgres:///db?host=/run/postgresql,db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://[::1]/db", PostgresTLS{Mode: TLSVerifyFull}, TLSVerifyFull},
		{"postgres://db:5433/db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://db/db", PostgresTLS{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "other"}, TLSVerifyFull},
		{"postgres://db1,127.0.0.1/db", PostgresTLS{}, TLSVerifyFull},
		{"postgres://db/db", PostgresTLS{Mode: TLSRequire}, TLSRequire},
		{"postgres://db/db", PostgresTLS{Mode: TLSDisable}, TLSDisable},
		{"nowhere", PostgresTLS{}, ""},
	} {
		p := TiersPostgres{URL: c.url, TLS: c.tls}
		if got := p.TLSMode(); got != c.mode {
			t.Errorf("%s %+v: mode %q, want %q", c.url, c.tls, got, c.mode)
		}
		got, err := p.TLSConfig()
		if c.mode == "" {
			if err == nil {
				t.Errorf("%s: got no error", c.url)
			}
			continue
		}
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
	_, err := TiersPostgres{URL: "postgres://db/db", TLS: PostgresTLS{CAFile: key}}.TLSConfig()
	if want := "tiers.postgres.tls.ca_file: " + key + ": holds no certificate in PEM"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestTiersConnection: no setting is lost on the way to whoever connects.
func TestTiersConnection(t *testing.T) {
	given := TiersRedis{
		URL: "rediss-sentinel://h/main", Username: "u", Password: "p", PasswordFile: "f", SentinelUsername: "su", SentinelPassword: "sp",
		SentinelPasswordFile: "sf", TLS: TLS{CAFile: "c"}, PoolSize: 1, DialTimeout: 2, KeyPrefix: "k",
	}
	want := Redis{
		URL: given.URL, Username: "u", Password: "p", PasswordFile: "f", SentinelUsername: "su", SentinelPassword: "sp",
		SentinelPasswordFile: "sf", TLS: TLS{CAFile: "c"}, PoolSize: 1, DialTimeout: 2, KeyPrefix: "k",
	}
	if diff := cmp.Diff(want, given.Connection()); diff != "" {
		t.Errorf("connection (-want +got):\n%s", diff)
	}
}

func TestParseCredential(t *testing.T) {
	for text, want := range map[string]Credential{
		"header:X-Api-Key": {CredentialHeader, "x-api-key"},
		"HEADER:key":       {CredentialHeader, "key"},
		"bearer":           {CredentialBearer, ""},
		"Basic":            {CredentialBasic, ""},
		"apikey":           {CredentialAPIKey, ""},
		"query:api_Key":    {CredentialQuery, "api_Key"},
		"query:a:b c":      {CredentialQuery, "a:b c"},
		"cookie:Session":   {CredentialCookie, "Session"},
	} {
		got, err := ParseCredential(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "header", "x-api-key", "header::authority", "header:Authorization", "query:a\nb", "query:" + strings.Repeat("a", 257), "bearer:", " bearer"} {
		if got, err := ParseCredential(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func TestParseLabelHeader(t *testing.T) {
	got, err := ParseLabelHeader("X-Region=re.gi_on-1")
	if want := (LabelHeader{"x-region", "re.gi_on-1"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "x-region", "=region", "x=", "te=region", "x=a=b", "x=" + strings.Repeat("a", 65)} {
		if got, err := ParseLabelHeader(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

// TestTiersFromFilesAndEnvironment takes secrets as a deployment gives them.
func TestTiersFromFilesAndEnvironment(t *testing.T) {
	secret := write(t, "secret", "0123456789abcdef\n")
	got, err := LoadSettings("", []string{
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
	want.Tiers.HTTP.URL = "https://host/path"
	want.Tiers.HTTP.TokenFile = secret
	want.Tiers.Postgres.PasswordFile = secret
	want.Secrets.Key, want.Secrets.PreviousKey, want.Secrets.PreviousKeyFile = "0123456789ABCDEF", "0123456789abcdef", secret
	want.Authz.Credentials = []string{"query:key", "bearer"}
	want.Authz.SubjectHeader = "x-who"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	_, err = LoadSettings("", []string{"SLIDEGATE_SECRETS_KEY_FILE=" + secret, "SLIDEGATE_SECRETS_PREVIOUS_KEY_FILE=" + secret})
	if want := "environment: SLIDEGATE_SECRETS_PREVIOUS_KEY_FILE: is the same as secrets.key\n"; problemsOf(t, err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
