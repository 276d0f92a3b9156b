package config

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestOverridesAndLabels of subjects that are read as nodes, beside those that are
// read as lines.
func TestOverridesAndLabels(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 1}
  - key: quota
    quota_mode: true
    rate_limit: {name: quota, unit: minute, requests_per_unit: 1}
  - key: bucket
    rate_limit: {name: bucket, policy: token_bucket, by_tier: {free: {rate: 5/s, burst: 5}}}
  - key: both
    rate_limit: {name: both, limits: [{policy: token_bucket, rate: 5/s, burst: 5}, {policy: calendar, unit: month, requests_per_unit: 9}]}
`)
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", `tiers: [free]
default: free
subjects:
  - id: plain
    tier: free
  - id: acme
    overrides:
      per-key: {window: 30s, requests: 5}
      per-kye: {unlimited: true}
      quota: {limits: [{window: 1s, requests: 1}, {window: 1m, requests: 2}]}
    labels: {region: eu, empty: ""}
  - id: labels
    labels: {region: us}
    overrides:
  - id: other
    overrides:
      quota: {window: 1s, requests: 1}
      bucket: {max: 7}
  - id: another
    overrides: {bucket: {rate: 9/s, burst: 20}}
  - id: hits
    overrides:
      bucket: {unit: minute, requests_per_unit: 500}
      both: {unit: month, requests_per_unit: 500}
  - id: wrong
    overrides: {both: {unit: minute, requests_per_unit: 500}}
`)
	g := mustLoad(t, s)
	for id, want := range map[string]*tier.Extra{
		"plain": nil,
		"acme": {
			Overrides: map[string]tier.Override{
				"per-key": {Limits: []window.Limit{{Hits: 5, Window: 30 * time.Second}}},
				"per-kye": {Unlimited: true},
				"quota":   {Limits: []window.Limit{{Hits: 1, Window: time.Second}, {Hits: 2, Window: time.Minute}}},
			},
			Labels: map[string]string{"region": "eu", "empty": ""},
		},
		"labels": {Labels: map[string]string{"region": "us"}},
		"other": {Overrides: map[string]tier.Override{
			"quota":  {Limits: []window.Limit{{Hits: 1, Window: time.Second}}},
			"bucket": {Limits: []window.Limit{{Policy: window.InFlight, Hits: 7, Window: time.Second}}},
		}},
		"another": {Overrides: map[string]tier.Override{
			"bucket": {Limits: []window.Limit{{Policy: window.TokenBucket, Rate: 9, Hits: 20, Window: time.Second}}},
		}},
	} {
		configtest.Diff(t, want, g.Rules.Tiers().ByID(id).Extra, "%s", id)
	}
	want := []string{
		`tiers.yaml:9: subjects[1].overrides[1]: no rule has this name, did you mean "per-key"?`,
		"tiers.yaml:10: subjects[1].overrides[2]: subject acme, rule quota: a quota rule has one limit: rls ignores this override",
		"tiers.yaml:18: subjects[3].overrides[1]: subject other, rule bucket: these keys have no meaning under the policy token_bucket: rls ignores this override",
		"tiers.yaml:23: subjects[5].overrides[0]: subject hits, rule bucket: the rule is a token bucket, so these hits count as 500 per 1m, bursts of 500: write rate and burst",
		"tiers.yaml:24: subjects[5].overrides[1]: subject hits, rule both: it replaces all limits of the rule, so 5 per 1s, bursts of 5 does not apply to the subject: write under limits what shall stay",
		"tiers.yaml:26: subjects[6].overrides[0]: subject wrong, rule both: these keys have no meaning under the policies calendar and token_bucket: rls ignores this override",
	}
	configtest.Diff(t, want, configtest.Texts(g.Warnings, strings.TrimSuffix(s.Tiers.Path, "tiers.yaml")), "warnings")
}

// TestLabelsOfPeriods: a label that a rule takes for the day of its periods, and that is no day, is
// reported with its position, once for all subjects with that value.
func TestLabelsOfPeriods(t *testing.T) {
	s := settings.Default()
	s.Rules.Path = configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - key: api_key
    rate_limit: {name: monthly, policy: calendar, starts_label: billing_day, by_tier: {pro: {unit: month, requests_per_unit: 1}, free: {unlimited: true}}}
  - key: weekly
    rate_limit: {name: weekly, policy: calendar, subject: api_key, unit: week, requests_per_unit: 1, starts_label: weekday}
`)
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", `tiers: [free, pro]
default: free
subjects:
  - id: good
    tier: pro
    labels: {billing_day: "15", weekday: monday, region: first}
  - id: bad
    tier: pro
    labels:
      weekday: "1"
      billing_day: first
  - {id: free, labels: {billing_day: first}}
  - {id: again, tier: pro, labels: {billing_day: first}}
  - {id: third, tier: pro, labels: {billing_day: first}}
  - {id: none, tier: pro}
  - {id: "0", tier: pro, labels: {billing_day: "0"}}
`)
	want := []string{
		"tiers.yaml:10: subjects[1].labels[0]: subject bad: the periods of the rule weekly start on the day in this label, which is not a day of the week: write monday to sunday; they start as the rule says",
		"tiers.yaml:11: subjects[1].labels[1]: subject bad and 2 more with this value: the periods of the rule monthly start on the day in this label, which is not a day of the month: write 1 to 31; they start as the rule says",
		"tiers.yaml:16: subjects[6].labels[0]: subject 0: the periods of the rule monthly start on the day in this label, which is not a day of the month: write 1 to 31; they start as the rule says",
	}
	g := mustLoad(t, s)
	configtest.Diff(t, want, configtest.Texts(g.Warnings, strings.TrimSuffix(s.Tiers.Path, "tiers.yaml")), "warnings")
}

// TestSubjectsElsewhere: with other sources the file has the names and the default.
func TestSubjectsElsewhere(t *testing.T) {
	rules := configtest.Write(t, "rules.yaml", `domain: d
descriptors:
  - key: api_key
    rate_limit: {by_tier: {pro: {unit: day, requests_per_unit: 2}, default: {unit: day, requests_per_unit: 1}}}
`)
	names := "tiers: [basic, pro]\ndefault: basic\n"
	for _, source := range []string{settings.TiersInHeader, settings.TiersInRedis, settings.TiersInPostgres, settings.TiersOverHTTP} {
		s := settings.Default()
		s.Tiers.Source, s.Tiers.TrustedEntry = source, "plan"
		s.Rules.Path = rules
		load := func(tiers string) (*Generation, error) {
			s.Tiers.Path = ""
			if tiers != "" {
				s.Tiers.Path = configtest.Write(t, "tiers.yaml", tiers)
			}
			return Load(s)
		}
		for tiers, want := range map[string]string{"": "free", names: "basic", names + "subjects:\n": "basic", names + "subjects: []\n": "basic"} {
			g, err := load(tiers)
			if err != nil {
				t.Errorf("%s, %q: %v", source, tiers, err)
				continue
			}
			d := g.Rules.Tiers()
			if d.DefaultTier() != want || d.Subjects() != 0 || len(g.Warnings) != 0 {
				t.Errorf("%s, %q: default %s, %d subjects, warnings %v", source, tiers, d.DefaultTier(), d.Subjects(), g.Warnings)
			}
			if r := explain.NewReview(g.Rules); r.TiersWithoutSubject != nil {
				t.Errorf("%s, %q: tiers without a subject: %q", source, tiers, r.TiersWithoutSubject)
			}
		}
		for _, subjects := range []string{"subjects:\n  - id: acme\n", "subjects: [{id: acme}]\n", "subjects:\n  - id: [\n      acme]\n  - nonsense: 1\n"} {
			_, err := load(names + subjects)
			want := fmt.Sprintf("%s:3: subjects: subjects come from tiers.source %s: keep only tiers and default in this file\n", s.Tiers.Path, source)
			configtest.Problems(t, err, want)
		}
		// The names count.
		if _, err := load("tiers: [basic]\ndefault: basic\n"); !strings.Contains(configtest.ProblemsOf(t, err), `unknown tier "pro"`) {
			t.Errorf("%s: got %v, want an unknown tier", source, err)
		}
		l := loader{settings: s}
		who := l.identity(nil, nil)
		if who.TrustedEntry != "plan" || who.EachUnknownKey != (source == settings.TiersInHeader) {
			t.Errorf("%s: got %+v", source, who)
		}
	}
}

// TestPreviousSecretOfSettings finds keys by digests of either secret.
func TestPreviousSecretOfSettings(t *testing.T) {
	old, now := tier.NewSecrets(nil, []byte("0123456789abcdef")), tier.NewSecrets(nil, []byte("0123456789ABCDEF"))
	unkeyed := tier.NewSecrets(nil, nil)
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", fmt.Sprintf(`tiers: [free, starter, pro]
default: free
subjects:
  - {id: old, keys: [{sha256: %s}]}
  - {id: now, keys: [{sha256: %s}]}
  - {id: unkeyed, keys: [{sha256: %s}]}
`, old.Digest("old"), now.Digest("now"), unkeyed.Digest("unkeyed")))
	for _, c := range []struct {
		secrets settings.Secrets
		want    string
	}{
		{settings.Secrets{Key: "0123456789ABCDEF"}, "now"},
		{settings.Secrets{Key: "0123456789ABCDEF", PreviousKey: "0123456789abcdef"}, "old now"},
		{settings.Secrets{Key: "0123456789ABCDEF", PreviousUnkeyed: true}, "now unkeyed"},
		{settings.Secrets{PreviousKey: "0123456789abcdef"}, "old unkeyed"},
	} {
		s.Secrets = c.secrets
		g := mustLoad(t, s)
		var got []string
		for _, key := range []string{"old", "now", "unkeyed"} {
			if a, _ := g.Secrets.Resolve(t.Context(), g.Rules.Tiers(), g.Secrets.Fingerprint(key), "", 0); a.Subject != nil {
				got = append(got, a.Subject.ID)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: found %q, want %s", c.secrets, got, c.want)
		}
	}
}

// TestOneKeyInSettings: a tiers file and requests have one digest of a key, and the
// scheme Basic holds a key if authz.credentials says so.
func TestOneKeyInSettings(t *testing.T) {
	s := settings.Default()
	s.Tiers.Path = configtest.Write(t, "tiers.yaml", `tiers: [free, starter, pro]
default: free
subjects:
  - {id: acme, keys: [{plain: " Bearer k1\t"}, {plain: k2}]}
`)
	pair := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:k1"))
	for credentials, known := range map[string][]string{
		"bearer":       {"k1", "bearer k1", " ApiKey\tk1", "k2 "},
		"bearer basic": {"k1", "bearer k1", " ApiKey\tk1", "k2 ", pair, strings.ToUpper(pair[:5]) + " " + pair[5:] + " "},
	} {
		s.Authz.Credentials = nil
		for kind := range strings.FieldsSeq(credentials) {
			s.Authz.Credentials = append(s.Authz.Credentials, settings.Credential{Kind: kind})
		}
		g := mustLoad(t, s)
		var got []string
		for _, value := range []string{"k1", "bearer k1", " ApiKey\tk1", "k2 ", pair, strings.ToUpper(pair[:5]) + " " + pair[5:] + " ", "K1", "bearer k3"} {
			if g.Rules.Tiers().ByDigest(g.Secrets.Digest(value)) != nil {
				got = append(got, value)
			}
		}
		configtest.Diff(t, known, got, "%s: what is a key of acme", credentials)
	}
}
