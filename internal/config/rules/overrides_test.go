package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/configtest"
)

func TestReadOverrides(t *testing.T) {
	bucket := window.Limit{Policy: window.TokenBucket, Rate: 20, Window: time.Second, Hits: 100}
	per := func(hits uint64, length time.Duration) window.Limit { return window.Limit{Hits: hits, Window: length} }
	for text, want := range map[string]map[string]tier.Override{
		"":         nil,
		" \n":      nil,
		"null":     nil,
		"{}":       nil,
		"# none\n": nil,
		`{"a": {"unit": "MINUTE", "requests_per_unit": 500}}`: {"a": {Limits: []window.Limit{per(500, time.Minute)}}},
		"a b: {window: 30s, requests: 0}":                     {"a b": {Limits: []window.Limit{per(0, 30*time.Second)}}},
		`{"a": {"limits": [{"window": "1s", "requests": 5}, {"unit": "day", "requests_per_unit": 6}]}, "b": {"unlimited": true}}`: {
			"a": {Limits: []window.Limit{per(5, time.Second), per(6, strict.Day)}}, "b": {Unlimited: true},
		},
		"5: {unlimited: yes}": {"5": {Unlimited: true}},
		`{"a": {"observe": true}, "b": {"observe": false, "unit": "day", "requests_per_unit": 6}}`: {
			"a": {Observe: tier.ObserveOnly}, "b": {Observe: tier.ObserveNot, Limits: []window.Limit{per(6, strict.Day)}},
		},
		"a: {observe: off}\nb: {observe: 'yes'}\nc: {unlimited: true}\n": {
			"a": {Observe: tier.ObserveNot}, "b": {Observe: tier.ObserveOnly}, "c": {Unlimited: true},
		},
		`{"a": {"rate": "20/s", "burst": 100}, "b": {"unit": "quarter", "requests_per_unit": 6}}`: {
			"a": {Limits: []window.Limit{bucket}}, "b": {Limits: []window.Limit{per(6, 91*strict.Day)}},
		},
		`{"a": {"limits": [{"rate": "20/s", "burst": 100}, {"max": 7}, {"window": "1s", "requests": 9}]}}`: {
			"a": {Limits: []window.Limit{bucket, {Policy: window.InFlight, Hits: 7, Window: window.MinHold}, per(9, time.Second)}},
		},
		"a: {unlimited: true, until: 2026-01-31T18:00:00+01:00}\nb: {observe: true, until: '2026-01-31T18:00:00Z'}": {
			"a": {Unlimited: true, Until: time.Date(2026, 1, 31, 17, 0, 0, 0, time.UTC)}, "b": {Observe: tier.ObserveOnly, Until: time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC)},
		},
	} {
		got, err := ReadOverrides([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		configtest.Diff(t, want, got, "%s", text)
	}
	for text, want := range map[string]string{
		"[]":                                  "expected a mapping, got a list",
		"{":                                   "not YAML: a value is missing, or a closing bracket has no opening one; quote a text that begins with a bracket",
		"a: {}\n---\nb: {}":                   "more than one YAML document",
		`{"a": {"window": 5, "requests": 1}}`: "[0].window: not a time: write it like 500ms, 10s, 1h30m, 7d or 1w",
		`{"a": {"window": "1s"}, "b": {"unit": "day"}, "c": {"x": 1}}`:         "[2]: unknown key, expected one of unit, requests_per_unit, window, requests, precision, lease, policy, rate, burst, time_zone, starts, starts_label, max, hold, budget, currency, limits, unlimited, observe, until; [0].window: window without requests; [1].unit: unit without requests_per_unit",
		`{"a": {"limits": [{"window": "1s", "requests": 1, "lease": "5%"}]}}`:  "[0].limits[0].lease: only a rule may have lease: an override has only limits, observe and until",
		`{"a": {"observe": true, "unlimited": true}}`:                          "[0].unlimited: a limit or observe with unlimited: give one of the two",
		`{"a": {"observe": "50%"}, "b": {"observe": 1}, "c": {"observe": []}}`: "[2].observe: expected a text, got a list; [0].observe: not true or false: write one of them, because a percentage has no meaning for one subject; [1].observe: not true or false: write one of them, because a percentage has no meaning for one subject",
		`{"a": {"observe": "", "window": "1s", "requests": 1}}`:                "[0].observe: not true or false: write one of them, because a percentage has no meaning for one subject",
		`{"a": null}`: "[0]: no limit: give unit and requests_per_unit, or window and requests, or rate and burst, or max, or limits, or unlimited, or observe",
		`{"a": {}, "b": {}, "": {"x": 1}, "d": 1, "e": 2, "f": 3}`:          `[2]: unknown key, expected one of unit, requests_per_unit, window, requests, precision, lease, policy, rate, burst, time_zone, starts, starts_label, max, hold, budget, currency, limits, unlimited, observe, until; [3]: expected a mapping, got a number; [4]: expected a mapping, got a number; and 4 more problems`,
		`{"a": {"policy": "fixed", "window": "1s", "requests": 1}}`:         "[0].policy: only a rule may have policy: an override has only limits, observe and until",
		`{"a": {"max": 5, "hold": "1m"}}`:                                   "[0].hold: only a rule may have hold: an override has only limits, observe and until",
		`{"a": {"rate": "5", "burst": 5}, "b": {"rate": "5/s"}}`:            "[0].rate: not a rate: write hits and a time, such as 10/s, 600/m, 5/100ms or 1000/day; [1].rate: rate without burst: add the most requests at once, such as burst: 50",
		`{"a": {"max": 5, "rate": "5/s", "burst": 7}, "b": {"max": 99999}}`: "[0].max: max has no meaning with the policy token_bucket, which has rate and burst: remove it; [1].max: *** is above 10000, because the store reads all holds of a log with each request: split the limit over several values of an entry",
		`{"a": {"unlimited": true, "until": "tomorrow"}, "b": {"unlimited": true, "until": "2026-01-31"}, "c": {"until": "2026-01-31T18:00:00Z"}}`: "[0].until: not a time: write one with its zone, such as 2026-01-31T18:00:00Z; [1].until: not a time: write one with its zone, such as 2026-01-31T18:00:00Z; [2]: no limit: give unit and requests_per_unit, or window and requests, or rate and burst, or max, or limits, or unlimited, or observe",
		`{"a": {"window": "1s", "requests": -1}}`: "[0].requests: expected a whole number",
	} {
		got, err := ReadOverrides([]byte(text))
		if got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: got %v, %v, want %s", text, got, err, want)
		}
	}
}

// FuzzReadOverrides: whatever a source holds gives limits that the stores can hold,
// or an error of one line.
func FuzzReadOverrides(f *testing.F) {
	f.Add([]byte(`{"per-key": {"unit": "minute", "requests_per_unit": 500}, "export": {"unlimited": true}}`))
	f.Add([]byte(`{"bulk": {"limits": [{"window": "1s", "requests": 5}, {"window": "1s", "requests": 5}]}}`))
	f.Add([]byte("a: &a {unlimited: true, precision: 1s}\nb: *a\n<<: *a\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"a": {"observe": true}, "b": {"observe": "no", "max": 5}}`))
	f.Add([]byte(`{"a": {"limits": [{"rate": "20/s", "burst": 100}, {"max": 7}, {"window": "1s", "requests": 9}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadOverrides(data)
		if err != nil {
			if got != nil || err.Error() == "" || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%q: got %v, %q", data, got, err)
			}
			return
		}
		for name, o := range got {
			if name == "" || !o.Limited() && o.Observe == tier.ObserveByRule || o.Unlimited && (len(o.Limits) > 0 || o.Observe != tier.ObserveByRule) {
				t.Errorf("%q: %q has %+v", data, name, o)
			}
			seen := make(map[window.LogID]bool)
			for _, l := range o.Limits {
				log := window.Check{Limit: l}.Log()
				if err := l.Valid(); err != nil || seen[log] {
					t.Errorf("%q: %q has %+v: %v", data, name, o, err)
				}
				seen[log] = true
			}
		}
	})
}
