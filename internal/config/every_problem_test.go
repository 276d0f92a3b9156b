package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// A mistake is an edit of a good file that makes it bad. It keeps the number of
// lines.
type mistake struct{ good, bad string }

// TestEveryProblemAtOnce makes two mistakes in a file: whatever is said of each
// alone is said of both together.
func TestEveryProblemAtOnce(t *testing.T) {
	for kind, tt := range map[string]struct {
		text     string
		mistakes []mistake
		load     func(t *testing.T, text string) error
	}{
		"tiers": {goodTiers, []mistake{
			{"tiers: [free, starter, pro]", "tiers: [free, starter, pro, pro]"},
			{"tiers: [free, starter, pro]", "tiers: 5"},
			{"default: free", "default: fre"},
			{"default: free", "dflt: free"},
			{"id: one", "name: one"},
			{"id: two", "id: one"},
			{"id: two", "id: ip:two"},
			{"id: two", `id: ""`},
			{"tier: pro # of one", "tier: prp"},
			{"tier: pro # of two", "tier: [pro]"},
			{"plain: key-of-two", "plain: key-of-one"},
			{"plain: other-key-of-two", "plain: key-of-two"},
			{"plain: key-of-three", "plain: key-of-two"},
			{"plain: key-of-three", "plian: key-of-three"},
			{"plain: key-of-four", "plain: key-of-one"},
			{"disabled: false # of three", "disabled: maybe"},
			{"id: four", "id: three"},
			{"tier: free # of four", "tier: gold"},
			{"{window: 4s, requests: 4}", "{window: 4s, requests: four}"},
			{"window: 5s", "window: 5"},
			{"region: eu", "region: [eu]"},
			{"{id: five}", "five"},
		}, func(t *testing.T, text string) error {
			s := settings.Default()
			s.Tiers.Path = configtest.Write(t, "tiers.yaml", text)
			_, err := Load(s)
			return err
		}},
		"rules": {goodRules, []mistake{
			{"domain: one", "domain:"},
			{"domain: one", "domian: one"},
			{"key: a # of one", "kye: a"},
			{"requests: 1}", "requests: -1}"},
			{"window: 2s", "window: 2"},
			{"window: 3s", "window: 99999w"},
			{"unit: minute", "unit: minuet"},
			{"requests_per_unit: 4", "requets_per_unit: 4"},
			{"free:", "fere:"},
			{"lease: 5%", "lease: 95%"},
			{"lease: 5%", "lease: 5"},
			{"precision: 1s", "precision: 1"},
			{"observe: 10%", "observe: 10"},
			{"shadow_mode: true", "shadow_mode: perhaps"},
			{"charge: allowed", "charge: never"},
			{"on_store_error: local", "on_store_error: pass"},
			{"value: x", "value: y"},
			{"domain: two", "domain: one"},
			{"content_type: text/plain", "content_type: plain"},
			{"cost: 2", "cost: 0"},
			{"replaces: []", "replaces: [{name: l}]"},
			{"name: l # of y", "name: k"},
		}, func(t *testing.T, text string) error {
			s := settings.Default()
			s.Rules.Path = configtest.Write(t, "rules.yaml", text)
			_, err := Load(s)
			return err
		}},
		"settings": {goodSettings, []mistake{
			{"address: 127.0.0.1:1", "address: 127.0.0.1"},
			{"address: 127.0.0.1:1", "address: ''"},
			{"address: 127.0.0.1:2", "address: nowhere"},
			{"transport: unary", "transport: http"},
			{"type: redis", "type: disk"},
			{"timeout: 1s # of the store", "timeout: 1h"},
			{"pool_size: 1", "pool_size: -1"},
			{"key_prefix: p", "key_prefix: '{'"},
			{"styles: [ratelimit]", "styles: [rate]"},
			{"source: http", "source: ftp"},
			{"url: http://h/p", "url: h"},
			{"on_error: deny", "on_error: panic"},
			{"cache: {}", "cash: {}"},
			{"level: info", "level: loud"},
			{"delay: 1s", "delay: 1"},
		}, func(_ *testing.T, text string) error {
			_, _, err := settings.Parse("settings.yaml", []byte(text), nil)
			return err
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			// The directory of the file, and what names an item, which a mistake may change.
			differs := regexp.MustCompile(`[^ \n]*/|\[[^\]\n]*\]`)
			problems := func(text string) []string {
				return strings.Split(differs.ReplaceAllString(strings.TrimSpace(configtest.ProblemsOf(t, tt.load(t, text))), ""), "\n")
			}
			if got := problems(tt.text); got[0] != "" {
				t.Fatalf("the good file has problems: %q", got)
			}
			alone := make([][]string, len(tt.mistakes))
			for i, a := range tt.mistakes {
				if alone[i] = problems(edit(t, tt.text, a)); alone[i][0] == "" {
					t.Errorf("%q is no mistake", a.bad)
				}
				for j, b := range tt.mistakes[:i] {
					if a.good == b.good {
						continue
					}
					both := problems(edit(t, edit(t, tt.text, b), a))
					together := strings.Join(both, "\n")
					for _, one := range slices.Concat(alone[i], alone[j]) {
						if !strings.Contains(together, one) && !consequence(b, a) {
							t.Errorf("%q and %q: the problem is missing:\n%s\ngot\n%s", a.bad, b.bad, one, together)
						}
					}
				}
			}
		})
	}
}

// consequence reports pairs of which one takes away what the other is about.
func consequence(a, b mistake) bool {
	for _, pair := range [][2]string{
		{"tiers: 5", "default: fre"},
		{"tiers: 5", "tier: prp"},
		{"tiers: 5", "tier: gold"},
		{"name: one", "id: one"},
		{"plain: key-of-one", "plain: key-of-two"},
		{"domain:", "domain: one"},
		{"domian: one", "domain: one"},
		{"replaces: [{name: l}]", "name: k"},
	} {
		if a.bad == pair[0] && b.bad == pair[1] || a.bad == pair[1] && b.bad == pair[0] {
			return true
		}
	}
	return false
}

func edit(t *testing.T, text string, m mistake) string {
	t.Helper()
	if strings.Count(text, m.good) != 1 {
		t.Fatalf("%q is %d times in the file, want once", m.good, strings.Count(text, m.good))
	}
	return strings.Replace(text, m.good, m.bad, 1)
}

const goodTiers = `tiers: [free, starter, pro]
default: free
subjects:
  - id: one
    tier: pro # of one
    keys:
      - plain: key-of-one
  - id: two
    tier: pro # of two
    keys:
      - plain: key-of-two
      - plain: other-key-of-two
  - id: three
    disabled: false # of three
    keys:
      - plain: key-of-three
    overrides:
      a: {window: 4s, requests: 4}
      b: {window: 5s, requests: 5}
    labels: {region: eu}
  - id: four
    tier: free # of four
    keys:
      - plain: key-of-four
  - {id: five}
`

const goodRules = `domain: one
descriptors:
  - key: a # of one
    shadow_mode: true
    rate_limit: {window: 1s, requests: 1}
  - key: b
    rate_limit: {window: 2s, requests: 2}
  - key: b
    value: x
    rate_limit:
      window: 3s
      requests: 3
      name: k
      replaces: []
      charge: allowed
      on_store_error: local
      body: no
      content_type: text/plain
  - key: b
    value: y
    rate_limit:
      unit: minute
      requests_per_unit: 4
      name: l # of y
      replaces: [{name: k}]
      lease: 5%
  - key: api_key
    rate_limit:
      cost: 2
      precision: 1s
      observe: 10%
      by_tier:
        free: {unit: hour, requests_per_unit: 5}
        default: {unit: day, requests_per_unit: 6}
---
domain: two
descriptors: [{key: a}]
`

const goodSettings = `grpc:
  address: 127.0.0.1:1
  transport: unary
http:
  address: 127.0.0.1:2
store:
  type: redis
  timeout: 1s # of the store
  redis:
    pool_size: 1
    key_prefix: p
headers:
  styles: [ratelimit]
tiers:
  source: http
  http: {url: http://h/p}
  on_error: deny
  cache: {}
drain: {delay: 1s}
log: {level: info}
`
