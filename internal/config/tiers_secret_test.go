package config

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/random"
)

// planted stands for an API key that an operator wrote into the wrong place.
const planted = "sk_live_Planted51"

// plantedTiers is a valid tiers file with every key that the language has. Every
// word of it is a place where an API key may stand by mistake.
const plantedTiers = `tiers: [free, starter, pro]
default: free
subjects:
  - id: acme
    tier: pro
    disabled: false
    keys:
      - sha256: 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683
      - plain: some-key-of-acme
    overrides:
      per-key: {unit: minute, requests_per_unit: 500}
      search: {limits: [{window: 1s, requests: 2}, {window: 1m, requests: 20}]}
      export: {unlimited: true}
    labels: {region: eu, plan: "2024"}
  - id: globex
    keys:
      - plain: some-key-of-globex
  - id: initech
    tier: starter
    keys:
    - sha256: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
`

// plantedForms are the ways in which the planted key replaces a word: alone, as a
// wrong type, and as every kind of malformed YAML.
var plantedForms = []string{
	"KEY", `"KEY"`, "'KEY'", "1KEY", "KEY 1", "12h KEY", "KEY%", "- KEY", "KEY: KEY", "{KEY: KEY}", "{KEY: {KEY: KEY}}", "[KEY]", "[KEY, KEY]", "{key: KEY}", "{id: KEY}",
	"{sha256: KEY}", "{plain: KEY, plain: KEY}", "{plain: KEY, KEY: KEY}", "{KEY: 1, KEY: 2}", "[{key: KEY}, {id: KEY, key: KEY}]", "{window: KEY, requests: KEY}",
	"*KEY", "&KEY", "&KEY x", "&KEY {x: *KEY}", "&KEY [*KEY, *KEY]", "!KEY", "!KEY x", "!!KEY x", "!<KEY> x", "!!int KEY", "!!float KEY", "!!bool KEY", "!!null KEY", "!!binary KEY",
	`"KEY`, "'KEY", `"\KEY"`, `"\xKEY"`, "{KEY", "[KEY", "KEY}", "KEY]", "@KEY", "`KEY", "%KEY", "|KEY", "> KEY", "|\nKEY", "|\n\tKEY", "? KEY", "? [KEY]", ": KEY", "KEY:", "KEY: ", "\tKEY", "KEY\t: KEY",
	"KEY\n  KEY", "KEY\nKEY: KEY", "\n- KEY", "\n KEY", "<<: KEY", "{<<: KEY}", "{<<: [KEY]}", "<<", "...\n%KEY", "---\nKEY", "---\n%TAG ! KEY\n---\nx", "KEY # KEY", "\x00KEY", "\xffKEY", "\u2028KEY",
}

// TestNoValueOfATiersFileIsRepeated writes an API key into every place of a tiers
// file. No problem and no warning has it. make test takes a quarter of the forms at random for each.
func TestNoValueOfATiersFileIsRepeated(t *testing.T) {
	someRules := files.File{Name: "rules.yaml", Data: []byte("domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: per-key, unit: minute, requests_per_unit: 1}}\n")}
	refused, tried := 0, 0
	rng := random.Rand(t, 0)
	// A line and an item of a list are words, too.
	word := regexp.MustCompile(`[A-Za-z0-9_-]+(: \{.*\}|: \[.*\])?|"2024"|\{[^{}]*\}|\[[^\[\]]*\]`)
	names := regexp.MustCompile(`expected one of [^\n]*`) // the names of tiers may be reported
	for _, place := range word.FindAllStringIndex(plantedTiers, -1) {
		for _, form := range plantedForms {
			if !random.Long() && rng.IntN(4) > 0 {
				continue
			}
			tried++
			text := plantedTiers[:place[0]] + strings.ReplaceAll(form, "KEY", planted) + plantedTiers[place[1]:]
			l := loader{settings: settings.Default(), contents: contents{rules: []files.File{someRules}, tiers: &files.File{Name: "tiers.yaml", Data: []byte(text)}}}
			g, err := l.generation()
			reported := ""
			if err != nil {
				refused++
				reported = err.Error()
			} else {
				for _, w := range g.Warnings {
					reported += w.String() + "\n"
				}
			}
			if place[0] > 0 && strings.Count(plantedTiers[:place[0]], "\n") == 0 {
				reported = names.ReplaceAllString(reported, "")
			}
			if strings.Contains(reported, "lanted") {
				t.Errorf("%q in place of %q on line %d is repeated:\n%s", form, plantedTiers[place[0]:place[1]], 1+strings.Count(plantedTiers[:place[0]], "\n"), reported)
			}
		}
	}
	if tried < 600 || refused < tried/2 {
		t.Errorf("%d of %d files were refused: the test does not reach what it should", refused, tried)
	}
}

// TestNoValueOfARecordIsRepeated: what a customer source says of a subject's
// overrides is not repeated either; errors about it go into the log.
func TestNoValueOfARecordIsRepeated(t *testing.T) {
	const record = `{"per-key": {"unit": "minute", "requests_per_unit": 500}, "search": {"limits": [{"window": "1s", "requests": 2}]}, "export": {"unlimited": true}}`
	word := regexp.MustCompile(`"[A-Za-z_-]+"(: \{.*\}|: \[.*\])?|[0-9]+|true`)
	for _, place := range word.FindAllStringIndex(record, -1) {
		for _, form := range plantedForms {
			text := record[:place[0]] + strings.ReplaceAll(form, "KEY", planted) + record[place[1]:]
			if _, err := rules.ReadOverrides([]byte(text)); err != nil && strings.Contains(err.Error(), "lanted") {
				t.Errorf("%s is repeated:\n%s", text, err)
			}
		}
	}
}

// TestNoSecretOfTheSettingsIsRepeated writes a secret into every setting that is
// one, in a file and in the environment, in every wrong form. make test takes a quarter of the forms at
// random for each.
func TestNoSecretOfTheSettingsIsRepeated(t *testing.T) {
	rng := random.Rand(t, 1)
	for _, path := range []string{
		"secrets.key", "secrets.previous_key", "store.redis.url", "store.redis.password", "store.redis.sentinel_password",
		"tiers.redis.url", "tiers.postgres.url", "tiers.postgres.password", "tiers.http.url", "tiers.http.token",
	} {
		variable := variableOf(path)
		if variable == "" {
			t.Errorf("there is no setting %s", path)
			continue
		}
		for _, form := range append([]string{"redis://u:KEY@/", "redis://u:KEY@h:x/0", "postgres://u:KEY@h:x/d", "http://u:KEY@ h/", "%zz://KEY"}, plantedForms...) {
			if form == "KEY\nKEY: KEY" || !random.Long() && rng.IntN(4) > 0 {
				continue // the second line is no value of the setting
			}
			value := strings.ReplaceAll(form, "KEY", planted)
			parts := strings.Split(path, ".")
			text := ""
			for i, p := range parts[:len(parts)-1] {
				text += strings.Repeat("  ", i) + p + ":\n"
			}
			text += strings.Repeat("  ", len(parts)-1) + parts[len(parts)-1] + ": " + value + "\n"
			_, _, fileErr := settings.Parse("settings.yaml", []byte(text), nil)
			_, _, envErr := settings.Parse("", nil, []string{variable + "=" + value})
			if err := errors.Join(fileErr, envErr); err != nil && strings.Contains(err.Error(), "lanted") {
				t.Errorf("%s: %q is repeated:\n%s", path, form, err)
			}
		}
	}
}

// variableOf returns the environment variable of a setting, or "" if there is no such
// setting.
func variableOf(path string) string {
	for _, s := range settings.Describe(settings.Default()) {
		if s.Path == path || s.Path == path+"_file" { // a secret has a variable besides its file
			return settings.EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
		}
	}
	return ""
}
