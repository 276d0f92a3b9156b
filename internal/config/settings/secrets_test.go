package settings

import (
	"slices"
	"testing"

	"github.com/slidegate/slidegate/test/configtest"
)

// TestSecretInEnvironment: the variable without _FILE has the secret itself, and only one of the two
// counts.
func TestSecretInEnvironment(t *testing.T) {
	file := configtest.Write(t, "secret", "0123456789abcdef")
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{[]string{"SLIDEGATE_SECRETS_KEY=0123456789abcdef", "SLIDEGATE_TIERS_HTTP_TOKEN=hush", "SLIDEGATE_TIERS_POSTGRES_PASSWORD=hush"}, ""},
		{[]string{"SLIDEGATE_SECRETS_KEY=hush"}, "environment: SLIDEGATE_SECRETS_KEY: the secret has fewer than 16 bytes\n"},
		{[]string{"SLIDEGATE_SECRETS_KEY=hush-hush-hush-hush", "SLIDEGATE_SECRETS_KEY_FILE=" + file}, "environment: SLIDEGATE_SECRETS_KEY_FILE: secrets.key is also set: set only one of the two\n"},
		{[]string{"SLIDEGATE_STORE_REDIS_PASSWORD=hush", "SLIDEGATE_STORE_REDIS_URL=redis://:hush@h"}, "environment: SLIDEGATE_STORE_REDIS_PASSWORD: store.redis.url also has a user or a password: set them only once\n"},
		{[]string{"SLIDEGATE_STORE_REDIS_SENTINEL_PASSWORD=hush"}, "environment: SLIDEGATE_STORE_REDIS_SENTINEL_PASSWORD: there are no sentinels: store.redis.url does not begin with redis-sentinel:// or rediss-sentinel://\n"},
	} {
		_, _, err := Load("", c.environ)
		if got := configtest.ProblemsOf(t, err); got != c.want {
			t.Errorf("%q: got %q, want %q", c.environ, got, c.want)
		}
	}
}

// TestServerName: sni in a URL is the name that the certificate must have, and the scheme says
// whether there is TLS.
func TestServerName(t *testing.T) {
	s, _, err := Load("", []string{
		"SLIDEGATE_STORE_TYPE=redis", "SLIDEGATE_STORE_REDIS_URL=rediss://h:1/2?sni=redis.example", "SLIDEGATE_TIERS_REDIS_URL=rediss://u:p@h?sni=tiers.example",
		"SLIDEGATE_TIERS_POSTGRES_URL=postgres://u@h/db?application_name=a&sni=db.example", "SLIDEGATE_TIERS_HTTP_URL=https://h/p?sni=http.example&a=b",
		"SLIDEGATE_RULES_SOURCE=xds", "SLIDEGATE_RULES_XDS_ADDRESS=grpcs://h:1?sni=xds.example", "SLIDEGATE_COMPARE_ADDRESS=grpcs://h:2",
	})
	if err != nil {
		t.Fatal(err)
	}
	own := s.TiersRedis()
	got := []string{
		s.Store.Redis.URL.Reveal(), s.Store.Redis.TLS.ServerName, own.URL.Reveal(), own.TLS.ServerName, s.Tiers.Postgres.URL.Reveal(), s.Tiers.Postgres.TLS.ServerName,
		s.Tiers.HTTP.URL.Parsed.String(), s.Tiers.HTTP.TLS.ServerName, string(s.Rules.XDS.Address), s.Rules.XDS.TLS.ServerName, s.Compare.Address, s.Compare.TLS.ServerName,
	}
	want := []string{
		"rediss://h:1/2", "redis.example", "rediss://u:p@h", "tiers.example", "postgres://u@h/db?application_name=a", "db.example",
		"https://h/p?a=b", "http.example", "h:1", "xds.example", "h:2", "",
	}
	if !slices.Equal(got, want) || !s.Rules.XDS.TLS.Enabled || !s.Compare.TLS.Enabled {
		t.Errorf("got %q, want %q", got, want)
	}
	_, _, err = Load("", []string{"SLIDEGATE_STORE_REDIS_URL=redis://h?sni=a", "SLIDEGATE_TIERS_HTTP_URL=https://h/p?sni=a/b"})
	configtest.Problems(t, err, "environment: SLIDEGATE_TIERS_HTTP_URL: sni=a/b is not the name of a host\nenvironment: SLIDEGATE_STORE_REDIS_URL: sni is the name in a certificate, and there is no TLS: begin the URL with rediss\n")
}

// TestTiersRedis: without a URL the tiers are in the Redis of the store, under a prefix of its own.
func TestTiersRedis(t *testing.T) {
	s := Default()
	s.Store.Redis.URL.URL, s.Store.Redis.Username = "redis://store", "rls"
	if r := s.TiersRedis(); r.URL.URL != "redis://store" || r.Username != "rls" || r.KeyPrefix != "slidegate:tier:" {
		t.Errorf("got %v", r)
	}
	s.Tiers.Redis.URL.URL = "redis://tiers"
	if r := s.TiersRedis(); r.URL.URL != "redis://tiers" || r.Username != "" || r.KeyPrefix != "slidegate:tier:" {
		t.Errorf("got %v", r)
	}
}
