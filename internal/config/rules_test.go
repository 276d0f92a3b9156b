package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// tell writes everything that a rule says and that is not its default.
func tell(r *policy.Rule) string {
	var path []string
	for i, n := range r.Path {
		text := n.String()
		if n.Pattern {
			text += " (pattern)"
		}
		if i < len(r.Share) && r.Share[i] {
			text += " (shared)"
		}
		if i < len(r.ValueInMetric) && r.ValueInMetric[i] {
			text += " (in metrics)"
		}
		path = append(path, text)
	}
	line := r.Domain + ": " + strings.Join(path, " > ") + ": " + r.Name + ": " + tellTerms(r.Terms)
	var tiers []string
	for t, terms := range r.ByTier {
		tiers = append(tiers, t+" "+tellTerms(terms))
	}
	slices.Sort(tiers)
	for _, t := range tiers {
		line += ", " + t
	}
	add := func(is bool, format string, args ...any) {
		if is {
			line += "; " + fmt.Sprintf(format, args...)
		}
	}
	add(r.Subject != "", "by %s", r.Subject)
	add(r.Quota, "quota")
	add(r.Always, "always")
	add(r.Factor != 0, "cost %d", r.Factor)
	add(len(r.Replaces) > 0, "replaces %q", r.Replaces)
	add(r.OnStoreError != 0, "store error %d", r.OnStoreError)
	add(r.StoreErrorRetry != 0, "retry in %v", r.StoreErrorRetry)
	add(r.Denial != policy.Denial{}, "says %+v", r.Denial)
	if r.Metadata != nil {
		text, err := json.Marshal(r.Metadata)
		add(true, "metadata %s (%v)", text, err)
	}
	add(r.Detailed, "detailed")
	return line
}

func tellTerms(t policy.Terms) string {
	var parts []string
	for _, l := range t.Limits {
		text := fmt.Sprintf("%d/%s", l.Hits, policy.FormatWindow(l.Window))
		if l.Precision != window.Precision(l.Limit) {
			text += " to " + l.Precision.String()
		}
		if lease := policy.FormatLease(l.Lease); lease != "" {
			text += " lease " + lease
		}
		parts = append(parts, text)
	}
	if t.Unlimited {
		parts = append(parts, "unlimited")
	}
	text := strings.Join(parts, "+")
	if text == "" {
		text = "nothing"
	}
	if t.Observe > 0 {
		text += fmt.Sprintf(" observed %v", t.Observe)
	}
	return text
}

func tellAll(rules *policy.Rules) []string {
	var lines []string
	for _, r := range rules.All() {
		lines = append(lines, tell(r))
	}
	return lines
}

func texts(problems []Problem, without string) []string {
	var lines []string
	for _, p := range problems {
		if p.File != builtInTiers {
			lines = append(lines, strings.TrimPrefix(p.String(), without))
		}
	}
	return lines
}

// TestLanguage loads one file for each thing that the language can say.
func TestLanguage(t *testing.T) {
	for _, c := range []struct {
		name     string
		text     string
		settings func(*Settings)
		want     []string
		warnings []string
		outside  bool // of the schema, which knows no key that is ignored
	}{
		// What the README of envoyproxy/ratelimit shows.
		{
			name: "several values of a key",
			text: "domain: mongo\ndescriptors:\n" +
				"- {key: collection, value: orders, rate_limit: {unit: second, requests_per_unit: 40}}\n" +
				"- {key: collection, value: carts, rate_limit: {unit: second, requests_per_unit: 50}}\n",
			want: []string{"mongo: collection=orders: collection.orders: 40/1s", "mongo: collection=carts: collection.carts: 50/1s"},
		},
		{
			name: "nested, and a default for other values",
			text: `domain: mail
descriptors:
  - key: kind
    value: newsletter
    descriptors:
      - key: to
        rate_limit: {unit: day, requests_per_unit: 2}
      - key: to
        value: press@example.com
  - key: kind
    rate_limit: {unit: hour, requests_per_unit: 30}
  - key: to
    rate_limit: {unit: WEEK, requests_per_unit: 200}
`,
			want: []string{
				"mail: kind=newsletter > to: kind.newsletter.to: 2/1d",
				"mail: kind=newsletter > to=press@example.com: kind.newsletter.to.press-example.com: nothing",
				"mail: kind: kind: 30/1h",
				"mail: to: to: 200/1w",
			},
		},
		{
			name: "limits on two levels",
			text: `domain: edge
descriptors:
  - key: address
    rate_limit: {unit: second, requests_per_unit: 20}
    descriptors:
      - key: method
        value: POST
        rate_limit: {unit: second, requests_per_unit: 5}
  - key: address
    value: 10.1.1.1
    rate_limit: {unit: second, requests_per_unit: 0}
`,
			want: []string{
				"edge: address: address: 20/1s",
				"edge: address > method=POST: address.method.POST: 5/1s",
				"edge: address=10.1.1.1: address.10.1.1.1: 0/1s",
			},
		},
		{
			name: "unlimited",
			text: `domain: inner
descriptors:
  - key: ldap
    rate_limit: {unlimited: true}
  - key: dns
    rate_limit: {unlimited: Yes, requests_per_unit: 5}
  - key: azure
    rate_limit: {unlimited: no, unit: month, requests_per_unit: 100}
`,
			want: []string{"inner: ldap: ldap: unlimited", "inner: dns: dns: unlimited", "inner: azure: azure: 100/30d"},
			warnings: []string{
				":6: descriptors[dns].rate_limit.requests_per_unit: ignored beside unlimited, as envoyproxy/ratelimit does",
			},
		},
		{
			name: "shadow mode, of one descriptor and all of its tiers",
			text: `domain: d
descriptors:
  - key: service
    descriptors:
      - key: user
        value: anna
        rate_limit: {unit: second, requests_per_unit: 10}
        shadow_mode: true
      - key: user
        value: bert
        rate_limit: {unit: second, requests_per_unit: 20}
        shadow_mode:
      - key: user
        shadow_mode: on
        rate_limit:
          by_tier: {free: {unit: second, requests_per_unit: 1}, default: {unit: second, requests_per_unit: 2}}
`,
			want: []string{
				"d: service > user=anna: service.user.anna: 10/1s observed 1",
				"d: service > user=bert: service.user.bert: 20/1s",
				"d: service > user: service.user: 2/1s observed 1, free 1/1s observed 1; by user",
			},
		},
		{
			name: "replaces",
			text: `domain: d
descriptors:
  - key: team
    descriptors:
      - key: user
        rate_limit: {name: "per user, anywhere", unit: second, requests_per_unit: 5}
  - key: route
    value: reports
    descriptors:
      - key: user
        rate_limit:
          replaces:
            - name: per user, anywhere
            - name: gone
          unit: second
          requests_per_unit: 10
`,
			want: []string{
				`d: team > user: per-user--anywhere: 5/1s`,
				`d: route=reports > user: route.reports.user: 10/1s; replaces ["per user, anywhere" "gone"]`,
			},
			warnings: []string{
				`:6: descriptors[team].descriptors[user].rate_limit.name: headers and metrics call it per-user--anywhere: there a name has only letters, digits and "_.-", and at most 64 of them`,
				`:14: descriptors[route=reports].descriptors[user].rate_limit.replaces[1].name: no rule of the domain has the name "gone"`,
			},
		},
		{
			name: "metrics flags",
			text: `domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        descriptors:
          - key: tenant
            value_to_metric: true
            rate_limit: {unit: minute, requests_per_unit: 60}
  - key: page
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 10}
`,
			want: []string{
				"d: route (in metrics) > method > tenant (in metrics): route.method.tenant: 60/1m",
				"d: page: page: 10/1m; detailed",
			},
		},
		{
			name: "wildcards",
			text: `domain: d
descriptors:
  - {key: path, value: /a*, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, value: "*/b*c", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: "*", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: path*, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: api_key, value: "**", rate_limit: {unit: minute, requests_per_unit: 5}}
`,
			want: []string{
				"d: path=/a* (pattern): path.-a-: 1/1m",
				"d: path=*/b*c (pattern): path.--b-c: 2/1m",
				"d: path=* (pattern): path.-: 3/1m",
				"d: path*: path-: 4/1m",
				"d: api_key=** (pattern): api_key: 5/1m; by api_key",
			},
			warnings: []string{
				":6: descriptors[path*].key: * is a wildcard in values only: this is a key with that character",
			},
		},
		{
			name: "shared threshold, and deeper",
			text: `domain: d
descriptors:
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 10}
    descriptors:
      - key: user
        value: u*
        rate_limit: {unit: hour, requests_per_unit: 5}
  - key: other
    value: o*
    share_threshold: false
    rate_limit: {unit: hour, requests_per_unit: 10}
`,
			want: []string{
				"d: files=files/* (pattern) (shared): files.files--: 10/1h",
				"d: files=files/* (pattern) (shared) > user=u* (pattern): files.files--.user.u-: 5/1h",
				"d: other=o* (pattern): other.o-: 10/1h",
			},
		},
		{
			name: "quota mode and metadata",
			text: `domain: d
descriptors:
  - key: model
    value: large
    quota_mode: true
    metadata: {backend: a, deep: {weight: 3, on: true, off: no, none: null, list: [1, x, 2.5, -7, 0x10]}}
    rate_limit: {unit: minute, requests_per_unit: 100}
  - key: model
    value: small
    metadata:
    rate_limit: {unit: minute, requests_per_unit: 100}
`,
			want: []string{
				`d: model=large: model.large: 100/1m; quota; metadata {"backend":"a","deep":{"list":[1,"x",2.5,-7,16],"none":null,"off":"no","on":true,"weight":3}} (<nil>)`,
				"d: model=small: model.small: 100/1m",
			},
		},
		{
			name: "keys where envoyproxy/ratelimit ignores them",
			text: `domain: d
shadow_mode: true
unit: day
descriptors:
  - key: k
    unit: second
    name: n
    requests_per_unit: 5
    rate_limit:
      shadow_mode: true
      value: x
      descriptors: []
      unit: hour
      requests_per_unit: 1
      replaces: [{name: m, unit: day}]
  - key: m
    rate_limit: {unit: hour, requests_per_unit: 1, name: m}
`,
			want: []string{`d: k: k: 1/1h; replaces ["m"]`, "d: m: m: 1/1h"},
			warnings: []string{
				`:2: "shadow_mode" is ignored here, as envoyproxy/ratelimit does: it belongs in a descriptor, beside its key`,
				`:3: "unit" is ignored here, as envoyproxy/ratelimit does: it belongs in rate_limit`,
				`:6: descriptors[k]: "unit" is ignored here, as envoyproxy/ratelimit does: it belongs in rate_limit`,
				`:7: descriptors[k]: "name" is ignored here, as envoyproxy/ratelimit does: it belongs in rate_limit`,
				`:8: descriptors[k]: "requests_per_unit" is ignored here, as envoyproxy/ratelimit does: it belongs in rate_limit`,
				`:10: descriptors[k].rate_limit: "shadow_mode" is ignored here, as envoyproxy/ratelimit does: it belongs in a descriptor, beside its key`,
				`:11: descriptors[k].rate_limit: "value" is ignored here, as envoyproxy/ratelimit does: it belongs in a descriptor, beside its key`,
				`:12: descriptors[k].rate_limit: "descriptors" is ignored here, as envoyproxy/ratelimit does: it belongs in a descriptor, beside its key`,
				`:15: descriptors[k].rate_limit.replaces[0]: "unit" is ignored here, as envoyproxy/ratelimit does: it belongs in rate_limit`,
			},
			outside: true,
		},
		{
			name: "nothing is limited",
			text: "domain: d\ndescriptors:\n- {key: a, rate_limit: , shadow_mode: true, metadata: {x: y}}\n- {key: b, quota_mode: true, descriptors: [{key: c}]}\n- {key: e, rate_limit: , descriptors: [{key: c}]}\n",
			want: []string{`d: a: a: nothing; metadata {"x":"y"} (<nil>)`, "d: b > c: b.c: nothing", "d: e > c: e.c: nothing"},
			warnings: []string{
				":3: descriptors[a].rate_limit: without a value, so nothing is limited here: leave the key out if that is meant",
				":3: descriptors[a].shadow_mode: shadow_mode is for the rate_limit of this descriptor alone, and there is none",
				":4: descriptors[b].quota_mode: quota_mode is for the rate_limit of this descriptor alone, and there is none",
				":5: descriptors[e].rate_limit: without a value, so nothing is limited here: leave the key out if that is meant",
			},
		},
		// Our own.
		{
			name: "windows, several limits, precision",
			text: `domain: d
descriptors:
  - {key: a, rate_limit: {window: 1h30m, requests: 7}}
  - {key: b, rate_limit: {window: 10s, requests: 7, precision: 1s}}
  - {key: c, rate_limit: {window: 10s, requests: 50000, precision: 0}}
  - {key: e, rate_limit: {window: 10s, requests: 50000, precision: auto}}
  - key: f
    rate_limit:
      precision: 1s
      limits:
        - {window: 10s, requests: 5}
        - {unit: minute, requests_per_unit: 50, precision: 2s}
        - {unit: day, requests_per_unit: 5000, precision: auto}
`,
			want: []string{
				"d: a: a: 7/90m", "d: b: b: 7/10s to 1s", "d: c: c: 50000/10s to 0s", "d: e: e: 50000/10s",
				"d: f: f: 5/10s to 1s+50/1m to 2s+5000/1d",
			},
		},
		{
			name: "tiers",
			text: `domain: d
descriptors:
  - key: a
    rate_limit:
      subject: api_key
      by_tier:
        free: {unit: minute, requests_per_unit: 1, observe: 25%, precision: 1s}
        pro: {unlimited: true}
        default: {limits: [{window: 1s, requests: 1}, {window: 2s, requests: 2}], observe: off}
  - key: b
    rate_limit:
      window: 1m
      requests: 5
      observe: true
      by_tier: {pro: {window: 1m, requests: 6}}
  - key: c
    rate_limit:
      unlimited: true
      by_tier: {free: {window: 1m, requests: 6, observe: 12.5%}}
`,
			want: []string{
				"d: a: a: 1/1s+2/2s, free 1/1m to 1s observed 0.25, pro unlimited; by api_key",
				"d: b: b: 5/1m observed 1, pro 6/1m observed 1; by b",
				"d: c: c: unlimited, free 6/1m observed 0.125; by c",
			},
		},
		{
			name: "observe and precision beside by_tier",
			text: `domain: d
descriptors:
  - key: a
    rate_limit:
      observe: 25%
      precision: 2s
      by_tier:
        free: {window: 2s, requests: 1}
        starter: {window: 1m, requests: 1, observe: off, precision: auto}
        pro: {precision: 1s, observe: true, limits: [{window: 1m, requests: 1}, {window: 2m, requests: 1, precision: 3s}]}
        default: {window: 1m, requests: 1}
  - key: b
    rate_limit:
      observe: true
      precision: 0
      unlimited: true
      by_tier: {free: {limits: [{unit: day, requests_per_unit: 50000}, {unit: hour, requests_per_unit: 1, precision: 1m}]}, pro: {unlimited: true}}
  - key: c
    rate_limit:
      precision: 2s
      limits: [{window: 1m, requests: 1}, {window: 2m, requests: 1, precision: 1s}]
      by_tier: {free: {window: 3m, requests: 1}}
`,
			want: []string{
				"d: a: a: 1/1m to 2s observed 0.25, free 1/2s to 2s observed 0.25, pro 1/1m to 1s+1/2m to 3s observed 1, starter 1/1m; by a",
				"d: b: b: unlimited, free 50000/1d to 0s+1/1h to 1m0s observed 1, pro unlimited; by b",
				"d: c: c: 1/1m to 2s+1/2m to 1s, free 1/3m to 2s; by c",
			},
		},
		{
			name: "leases",
			text: `domain: d
descriptors:
  - {key: a, rate_limit: {window: 1s, requests: 100, lease: 50ms}}
  - {key: b, rate_limit: {window: 1s, requests: 100, lease: 29%}}
  - {key: c, rate_limit: {window: 10ms, requests: 100, lease: 50 %}}
  - {key: n, rate_limit: {window: 1s, requests: 100, lease: none}}
  - key: e
    rate_limit:
      lease: 10%
      limits:
        - {window: 1s, requests: 50}
        - {unit: minute, requests_per_unit: 1000, lease: 1s}
        - {unit: hour, requests_per_unit: 1000, lease: none}
  - key: f
    rate_limit:
      lease: 20ms
      unit: minute
      requests_per_unit: 600
      by_tier: {free: {unit: minute, requests_per_unit: 60, lease: none}, starter: {unit: second, requests_per_unit: 50}, pro: {unlimited: true}}
  - {key: s, shadow_mode: true, rate_limit: {window: 1s, requests: 100, lease: 50ms}}
  - {key: g, rate_limit: {window: 1s, requests: 49, lease: 10%}}
  - {key: h, rate_limit: {window: 1s, requests: 49, lease: 10ms}}
  - key: i
    rate_limit: {lease: 10%, by_tier: {free: {window: 1s, requests: 49}, pro: {window: 1s, requests: 50}, default: {window: 1s, requests: 50, lease: 10ms}}}
`,
			want: []string{
				"d: a: a: 100/1s lease for 50ms", "d: b: b: 100/1s lease up to 29 for 50ms", "d: c: c: 100/10ms lease up to 50 for 1ms", "d: n: n: 100/1s",
				"d: e: e: 50/1s lease up to 5 for 50ms+1000/1m lease for 1s+1000/1h",
				"d: f: f: 600/1m lease for 20ms, free 60/1m, pro unlimited, starter 50/1s lease for 20ms; by f",
				"d: s: s: 100/1s lease for 50ms observed 1",
				"d: g: g: 49/1s",
				"d: h: h: 49/1s",
				"d: i: i: 50/1s lease for 10ms, free 49/1s, pro 50/1s lease up to 5 for 50ms; by i",
			},
			warnings: []string{
				":21: descriptors[g].rate_limit.lease: 10% of 49 is less than 5 hits, so nothing is reserved",
				":22: descriptors[h].rate_limit.lease: a tenth of 49 is less than 5 hits, so nothing is reserved",
			},
		},
		{
			name: "what a rule does while the store is away",
			text: `domain: d
descriptors:
  - {key: a, rate_limit: {window: 1s, requests: 1, on_store_error: deny}}
  - {key: b, rate_limit: {window: 1s, requests: 1, on_store_error: {choice: deny, retry_after: 5s}}}
  - key: c
    rate_limit:
      window: 1s
      requests: 1
      on_store_error:
        choice: local
`,
			want: []string{"d: a: a: 1/1s; store error 2", "d: b: b: 1/1s; store error 2; retry in 5s", "d: c: c: 1/1s; store error 3"},
		},
		{
			name: "tiers that share a log",
			text: `domain: d
descriptors:
  - key: tenant
    value: t-*
    share_threshold: true
    rate_limit: {by_tier: {free: {window: 1m, requests: 1, observe: true}, default: {window: 1m, requests: 2}}}
    descriptors:
      - key: route
        rate_limit:
          subject: tenant
          by_tier: {free: {window: 1m, requests: 1}, default: {window: 1m, requests: 2}}
      - key: user
        rate_limit: {by_tier: {free: {window: 1m, requests: 1}, default: {window: 1m, requests: 2}}}
      - key: other
        rate_limit:
          subject: api_key
          by_tier: {free: {window: 1m, requests: 1}, default: {window: 1m, requests: 2}}
      - key: one
        rate_limit: {subject: tenant, by_tier: {default: {window: 1m, requests: 2}}}
  - key: tenant
    value: u-*
    rate_limit: {by_tier: {free: {window: 1m, requests: 1}, default: {window: 1m, requests: 2}}}
`,
			want: []string{
				"d: tenant=t-* (pattern) (shared): tenant.t--: 2/1m, free 1/1m observed 1; by tenant",
				"d: tenant=t-* (pattern) (shared) > route: tenant.t--.route: 2/1m, free 1/1m; by tenant",
				"d: tenant=t-* (pattern) (shared) > user: tenant.t--.user: 2/1m, free 1/1m; by user",
				"d: tenant=t-* (pattern) (shared) > other: tenant.t--.other: 2/1m, free 1/1m; by api_key",
				"d: tenant=t-* (pattern) (shared) > one: tenant.t--.one: 2/1m; by tenant",
				"d: tenant=u-* (pattern): tenant.u--: 2/1m, free 1/1m; by tenant",
			},
			warnings: []string{
				":6: descriptors[tenant=t-*].rate_limit.by_tier: the tiers share one log: share_threshold gives one to all values of tenant",
				":11: descriptors[tenant=t-*].descriptors[route].rate_limit.by_tier: the tiers share one log: share_threshold gives one to all values of tenant",
			},
		},
		{
			name: "a tier called default",
			text: "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    by_tier:\n      default: {unit: day, requests_per_unit: 1}\n",
			settings: func(s *Settings) {
				s.Tiers.Path = "testdata/tier-named-default.yaml"
			},
			want:     []string{"d: a: a: 1/1d; by a"},
			warnings: []string{":6: descriptors[a].rate_limit.by_tier.default: default is for every tier that is not named here, and one of the tiers is called default"},
		},
		{
			name: "cost, charge, store errors, denials",
			text: `domain: d
headers: [draft03]
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, cost: 5, charge: always, on_store_error: allow}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 1, cost: 1, charge: allowed, on_store_error: deny, body: "Nö\n"}}
  - {key: c, rate_limit: {unit: day, requests_per_unit: 1, on_store_error: local, status_text: Slow down}}
  - key: e
    rate_limit:
      unit: day
      requests_per_unit: 1
      cost: 4294967295
      content_type: text/html
      status_text: unused
      body: |
        <p># no comment
        - key: f
`,
			want: []string{
				"d: a: a: 1/1d; always; cost 5; store error 1",
				"d: b: b: 1/1d; cost 1; store error 2; says {Body:Nö\n ContentType:text/plain; charset=utf-8 StatusText:}",
				"d: c: c: 1/1d; store error 3; says {Body: ContentType: StatusText:Slow down}",
				"d: e: e: 1/1d; cost 4294967295; says {Body:<p># no comment\n- key: f\n ContentType:text/html StatusText:unused}",
			},
			warnings: []string{":13: descriptors[e].rate_limit.status_text: not used: it is the title of the problem document, which body replaces"},
		},
		{
			name: "several domains in one file",
			text: "domain: a\nheaders: []\ndescriptors: [{key: x}]\n---\ndomain: b\ndescriptors: [{key: x}]\n---\n",
			want: []string{"a: x: x: nothing", "b: x: x: nothing"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Default()
			if c.settings != nil {
				c.settings(&s)
			}
			s.Rules.Path = write(t, "rules.yaml", c.text)
			g, err := Load(s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, tellAll(g.Rules)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.warnings, texts(g.Warnings, s.Rules.Path)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			valid(t, rulesSchema, s.Rules.Path, !c.outside)
		})
	}
}

// TestModesOfAllRules: the settings reach the rules, and contradictions with
// them are told.
func TestModesOfAllRules(t *testing.T) {
	s := Default()
	s.Rules.QuotaMode = true
	s.Rules.Path = write(t, "rules.yaml", `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, charge: always}}
  - {key: b, rate_limit: {limits: [{window: 1s, requests: 1}, {window: 2s, requests: 1}]}}
`)
	_, err := Load(s)
	want := s.Rules.Path + ":3: descriptors[a].rate_limit.charge: what is always charged cannot be an alternative, as the setting rules.quota_mode says\n" +
		s.Rules.Path + ":4: descriptors[b].rate_limit.limits: a quota rule has one limit, since of several one could have room and another not: see the setting rules.quota_mode\n"
	if got := problemsOf(t, err); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, c := range []struct {
		name           string
		shadow, quota  bool
		observed, each bool
	}{{"none", false, false, false, false}, {"shadow", true, false, true, false}, {"quota", false, true, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := Default()
			s.Rules.ShadowMode, s.Rules.QuotaMode = c.shadow, c.quota
			s.Rules.Path = write(t, "rules.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}, {key: l, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
			g, err := Load(s)
			if err != nil {
				t.Fatal(err)
			}
			v := decide(t, g.Rules, "k", "l")
			if got, want := v.Allowed, c.shadow || c.quota; got != want {
				t.Errorf("a request over one of two limits: allowed %v, want %v", got, want)
			}
			if got := v.Limits[0].Observed; got != c.observed {
				t.Errorf("observed: got %v, want %v", got, c.observed)
			}
			if got := v.Limits[0].Quota; got != c.each {
				t.Errorf("quota: got %v, want %v", got, c.each)
			}
		})
	}
}

// TestSecretsAreNotRepeated: neither a problem nor a warning shows the value of an
// entry that is secret or seems to be, whichever way its key is written.
func TestSecretsAreNotRepeated(t *testing.T) {
	const rules = `domain: d
descriptors:
  - {key: Authorization, value: Bearer hush-1, rate_limit: {unit: day, requests_per_unit: 1, name: "a b"}}
  - {value: hush-2, key: X-Access-Token, descriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: my_password, value: hush 3, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: gone}]}}
  - {key: my_password, value: hush+3, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: my-secret, value: hush-4*, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a.secret, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, descriptors: [{key: secret, rate_limit: {unit: day, requests_per_unit: 1}}]}
`
	s := Default()
	s.Rules.Path = write(t, "rules.yaml", rules)
	g, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	suspect := func(key string) string {
		return fmt.Sprintf("if this holds API keys, add %q to secrets.entries: as it is, its values are kept as they come, and are no keys of any subject", key)
	}
	want := []string{
		":3: descriptors[Authorization=***].value: an API key in plain text: give it a subject in the tiers file, and a rule for its tier",
		`:3: descriptors[Authorization=***].rate_limit.name: headers and metrics call it a-b: there a name has only letters, digits and "_.-", and at most 64 of them`,
		":4: descriptors[X-Access-Token=***].key: " + suspect("X-Access-Token"),
		":4: descriptors[X-Access-Token=***].descriptors[a*].key: * is a wildcard in values only: this is a key with that character",
		":5: descriptors[my_password=***].key: " + suspect("my_password"),
		`:5: descriptors[my_password=***].rate_limit.replaces[0].name: no rule of the domain has the name "gone"`,
		":6: descriptors[my_password=***].key: " + suspect("my_password"),
		":6: descriptors[my_password=***].rate_limit: the rule on line 5 has the same name: give one of them another",
		":7: descriptors[my-secret=***].key: " + suspect("my-secret"),
		":8: descriptors[a.secret].key: " + suspect("a.secret"),
		":9: descriptors[a].descriptors[secret].key: " + suspect("secret"),
		":9: descriptors[a].descriptors[secret].rate_limit: the rule on line 8 has the same name, a.secret: give one of them another",
	}
	if diff := cmp.Diff(want, texts(g.Warnings, s.Rules.Path)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got, want := g.Rules.All()[0].Path[0].Value, g.Secrets.Digest("Bearer hush-1"); got != want {
		t.Errorf("the value that is kept of Authorization: got %q, want its digest", got)
	}
	s.Rules.Path = write(t, "rules.yaml", strings.ReplaceAll(rules, "unit: day", "unit: dya"))
	if _, err := Load(s); strings.Contains(problemsOf(t, err), "hush") || strings.Count(problemsOf(t, err), "did you mean") != 7 {
		t.Errorf("problems: got\n%v", err)
	}
}

// TestMergedDomains joins a domain from several files and documents.
func TestMergedDomains(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.yaml", "domain: d\ndescriptors:\n- {key: p, value: a*, rate_limit: {name: one, unit: day, requests_per_unit: 1}}\n---\ndomain: e\n---\ndomain: d\ndescriptors:\n- {key: q}\n")
	put(t, dir, "b.yaml", "domain: d\nheaders: [draft03]\ndescriptors:\n- {key: p, value: ab*, rate_limit: {unit: day, requests_per_unit: 2, replaces: [{name: one}]}}\n")
	put(t, dir, ".c.yaml", "domain: d\ndescriptors:\n- {key: hidden}\n")
	s := Default()
	s.Rules.Path = dir
	_, err := Load(s)
	want := fmt.Sprintf("%[1]s/a.yaml:7: domain: a second domain \"d\", the first is on line 1: a domain stands in one place, unless rules.merge_domains joins them\n"+
		"%[1]s/b.yaml:1: domain: a second domain \"d\", the first is in %[1]s/a.yaml:1: a domain stands in one place, unless rules.merge_domains joins them\n", dir)
	if got := problemsOf(t, err); got != want {
		t.Errorf("not merged: got\n%swant\n%s", got, want)
	}

	s.Rules.MergeDomains = true
	g, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	rules := []string{"d: p=a* (pattern): one: 1/1d", "d: q: q: nothing", `d: p=ab* (pattern): p.ab-: 2/1d; replaces ["one"]`}
	if diff := cmp.Diff(rules, tellAll(g.Rules)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	warnings := []string{dir + `/a.yaml:5: domain: no descriptors, so nothing is limited in "e"`}
	if diff := cmp.Diff(warnings, texts(g.Warnings, "")); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	places := []Place{{dir + "/a.yaml", 3}, {dir + "/a.yaml", 9}, {dir + "/b.yaml", 4}}
	if diff := cmp.Diff(places, g.Places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}

	s.Rules.IgnoreDotFiles = false
	g, err = Load(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tellAll(g.Rules)[0], "d: hidden: hidden: nothing"; got != want {
		t.Errorf("with dot files: got %q first, want %q", got, want)
	}
	if got, want := g.Files[0], filepath.Join(dir, ".c.yaml"); got != want {
		t.Errorf("with dot files: got %q first, want %q", got, want)
	}
	s.Rules.IgnoreDotFiles = true

	put(t, dir, "c.yaml", "domain: d\nheaders: []\ndescriptors:\n- {key: q, descriptors: [{key: r}]}\n- {key: s, rate_limit: {name: two, unit: day, requests_per_unit: 1, replaces: [{name: three}]}}\n")
	put(t, dir, "d.yaml", "domain: d\ndescriptors:\n- {key: t, rate_limit: {name: three, unit: day, requests_per_unit: 1, replaces: [{name: two}]}}\n")
	_, err = Load(s)
	want = fmt.Sprintf("%[1]s/c.yaml:2: headers: the domain has headers already, in %[1]s/b.yaml:2\n"+
		"%[1]s/c.yaml:4: descriptors[q]: a second descriptor like the one in %[1]s/a.yaml:9: put both into one\n"+
		"%[1]s/d.yaml:3: descriptors[t].rate_limit.replaces[0].name: a cycle: \"two\" replaces \"three\" in %[1]s/c.yaml:5, and \"three\" replaces \"two\": none of them would count\n", dir)
	if got := problemsOf(t, err); got != want {
		t.Errorf("twice: got\n%swant\n%s", got, want)
	}
}

// TestKeysOfTheReferenceAreKnownEverywhere: such files load there.
func TestKeysOfTheReferenceAreKnownEverywhere(t *testing.T) {
	for _, level := range []keyJudge{new(rulesDoc), new(descriptorEntry), new(rateLimit), new(replacement)} {
		shape := shapeOf(reflect.TypeOf(level).Elem())
		for _, key := range ofReference {
			if _, known := shape.fields[key]; known {
				continue
			}
			if got := level.judgeKey(key); !got.ignored || got.message == "" {
				t.Errorf("%T: %s: got %+v, want a warning", level, key, got)
			}
		}
	}
	if got, want := len(ofReference), 16; got != want {
		t.Errorf("keys of the reference: got %d, want %d", got, want)
	}
}

// TestHeadersOfADomain: they reach its answers, and no other domain's.
func TestHeadersOfADomain(t *testing.T) {
	for _, c := range []struct {
		headers string
		want    []string
	}{{"", nil}, {"headers: []\n", []string{}}, {"headers: [draft03]\n", []string{"draft03"}}, {"headers:\n", nil}} {
		s := Default()
		s.Rules.Path = write(t, "rules.yaml", "domain: other\nheaders: [x-ratelimit]\n---\ndomain: d\n"+c.headers+"descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
		g, err := Load(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, decide(t, g.Rules, "k").Headers); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.headers, diff)
		}
	}
}

// TestReplacesOfAnUnknownName suggests what was meant.
func TestReplacesOfAnUnknownName(t *testing.T) {
	s := Default()
	s.Rules.Path = write(t, "rules.yaml", `domain: d
descriptors:
  - {key: a, rate_limit: {name: per-key, unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: x, unit: day, requests_per_unit: 1, replaces: [{name: per_key}, {name: b}]}}
`)
	g, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`:4: descriptors[b].rate_limit.replaces[0].name: no rule of the domain has the name "per_key", did you mean "per-key"?`,
		`:4: descriptors[b].rate_limit.replaces[1].name: no rule of the domain has the name "b"`,
	}
	if diff := cmp.Diff(want, texts(g.Warnings, s.Rules.Path)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestChainsOfReplaces: no cycle, however long or often reached, and not within
// another domain.
func TestChainsOfReplaces(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	const n = 20_000
	for i := range n {
		fmt.Fprintf(&b, "- {key: k%d, rate_limit: {name: n%d, unit: day, requests_per_unit: 1, replaces: [{name: n%d}, {name: n%d}]}}\n", i, i, i+1, i+2)
	}
	fmt.Fprintf(&b, "- {key: a, rate_limit: {name: n%d, unlimited: true}}\n- {key: b, rate_limit: {name: n%d, unlimited: true}}\n", n, n+1)
	fmt.Fprintf(&b, "---\ndomain: e\ndescriptors:\n- {key: k, rate_limit: {name: n%d, unlimited: true, replaces: [{name: m}]}}\n- {key: m, rate_limit: {name: m, unlimited: true}}\n", n)
	s := Default()
	s.Rules.Path = write(t, "rules.yaml", b.String())
	g, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(g.Warnings, ""); len(got) > 0 {
		t.Errorf("got warnings %q, want none", got)
	}
}

// decide asks for one request with a descriptor for each key.
func decide(t *testing.T, rules *policy.Rules, keys ...string) *policy.Verdict {
	t.Helper()
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	req := policy.Request{Domain: "d"}
	for _, k := range keys {
		req.Descriptors = append(req.Descriptors, policy.Descriptor{Entries: descriptors.Descriptor{{Key: k, Value: "v"}}, Cost: 1})
	}
	var c policy.Call
	policy.NewDecider(rules, policy.Options{Store: store, Meters: noMeters{}, Log: zap.NewNop()}).Begin(&c, req)
	if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
		t.Fatal(err)
	}
	return c.Verdict()
}

// noMeters counts nothing.
type noMeters struct{}

func (noMeters) Meter(_, _ string) policy.Meter { return noMeters{} }
func (noMeters) UnknownDomain()                 {}
func (noMeters) Count(policy.Outcome)           {}
func (noMeters) Detail([]byte, policy.Outcome)  {}
