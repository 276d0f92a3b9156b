package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
)

// This file is the written form of rules: which keys there are, where, and of which type. A
// [strict.Decoder] fills it from files, and domain.go from what was not read from a file. The doc tags
// are the descriptions in docs/rules.schema.json.

type rulesDoc struct {
	Domain      strict.Field[string]            `yaml:"domain,required" doc:"the domain of Envoy's rate-limit filter, such as edge. Required"`
	Policy      strict.Field[string]            `yaml:"policy" doc:"how limits without a policy count: sliding, fixed or sliding_counter. Default: rules.policy of the settings"`
	Headers     strict.Field[[]string]          `yaml:"headers" doc:"the styles of headers on answers, such as [ratelimit]; [] leaves only Retry-After. Default: headers.styles of the settings"`
	Descriptors []strict.Field[descriptorEntry] `yaml:"descriptors" doc:"the rules for the first entry of a descriptor"`
}

// descriptorEntry is one node of the rule tree. There are many, so a rare part is behind a
// pointer.
type descriptorEntry struct {
	Key            strict.Field[string]            `yaml:"key,required" doc:"the key of the entry, such as api_key; a * in it is no wildcard. Required"`
	Value          strict.Field[strict.Blankable]  `yaml:"value" doc:"the value of the entry, such as search; * stands for any text, as in /files/*. Without it the rule is for all values, and each has its own counter"`
	RateLimit      strict.Field[*rateLimit]        `yaml:"rate_limit" doc:"the limit of descriptors that end here. Without it they have none"`
	ShareThreshold strict.Field[strict.Truth]      `yaml:"share_threshold" doc:"whether all values that match the * share one counter. Default: false"`
	ShadowMode     strict.Field[strict.Truth]      `yaml:"shadow_mode" doc:"whether the limit counts and reports, but denies nothing. Default: false"`
	QuotaMode      strict.Field[strict.Truth]      `yaml:"quota_mode" doc:"whether the rule is an alternative. One alternative of a request must have quota left, and only those that have are charged. Default: false"`
	DetailedMetric strict.Field[strict.Truth]      `yaml:"detailed_metric" doc:"whether slidegate_detail_decisions_total has a series for every value of every entry. Default: false"`
	ValueToMetric  strict.Field[strict.Truth]      `yaml:"value_to_metric" doc:"as detailed_metric, for this entry alone. Default: false"`
	Metadata       strict.Field[metadata]          `yaml:"metadata" doc:"dynamic metadata for Envoy while the limit has quota left, such as {backend: large}; those of several rules are merged. At most 1000 values and 16 KiB"`
	Descriptors    []strict.Field[descriptorEntry] `yaml:"descriptors" doc:"the rules for the next entry of the descriptor"`
}

type limit struct {
	Unit            strict.Field[string]  `yaml:"unit" doc:"second, minute, hour, day, week, month (30 days) or year (365 days). With the policy calendar: hour, day, week, month, quarter or year"`
	RequestsPerUnit strict.Field[uint64]  `yaml:"requests_per_unit" doc:"the requests in a unit, such as 100. 0 denies all, 4294967295 none"`
	Window          strict.Field[string]  `yaml:"window" doc:"in place of unit, a time from 10ms to 400d, such as 1h30m or 7d"`
	Requests        strict.Field[uint64]  `yaml:"requests" doc:"the requests in a window, such as 100"`
	Precision       strict.Field[string]  `yaml:"precision" doc:"sliding: times are rounded up to it, to save memory: auto (exact up to 10,000 requests), 0 (exact), or a time such as 1s. A counter has at most 20,000 times. Default: auto"`
	Lease           strict.Field[string]  `yaml:"lease" doc:"sliding: what an instance may reserve ahead for a busy key: 1ms to 1s, at most a tenth of the window; a percentage up to 50%; or none. Default: none"`
	Policy          strict.Field[string]  `yaml:"policy" doc:"how the limit counts: sliding, token_bucket, fixed, calendar, sliding_counter or in_flight. Default: policy of the file"`
	Rate            strict.Field[string]  `yaml:"rate" doc:"token_bucket: how many requests come back in which time, such as 10/s, 5/100ms or 1/10s. Needs burst"`
	Burst           strict.Field[uint64]  `yaml:"burst" doc:"token_bucket: the most requests at once, such as 50"`
	TimeZone        strict.Field[string]  `yaml:"time_zone" doc:"calendar: a name of the IANA database, such as Europe/Berlin. Default: UTC"`
	Starts          strict.Field[*starts] `yaml:"starts" doc:"calendar: when periods start, such as {day: 15, hour: 9}. Default: the beginning of the unit"`
	StartsLabel     strict.Field[string]  `yaml:"starts_label" doc:"calendar: the label of the customer that says the day, such as billing_day, in place of starts"`
	Max             strict.Field[uint64]  `yaml:"max" doc:"in_flight: the most requests at the same time, up to 10000"`
	Hold            strict.Field[string]  `yaml:"hold" doc:"in_flight: when a request counts as ended if Envoy reports no end, such as 5m; at least 1s, and longer than any request"`
	reserving
}

// reserving are the keys of a limit that reserves costs.
type reserving struct {
	Budget   strict.Field[*budget] `yaml:"budget" doc:"a request reserves its estimated cost, and pays at its end what it has cost. Not with in_flight, lease, quota_mode, charge: always or charge_once. Default: it pays at once"`
	Currency strict.Field[string]  `yaml:"currency" doc:"the requests are millionths of a currency, such as usd, which answers name. Default: they are units"`
}

// budget says how a limit reserves costs.
type budget struct {
	Reserve   strict.Field[uint64]    `yaml:"reserve,required" doc:"the estimate for a request without one, or with one that is 0, such as 4096. Required"`
	Max       strict.Field[uint64]    `yaml:"max" doc:"the largest estimate; a larger one counts as this. Default: 1000000000, the most that Envoy can send in hits_addend"`
	Hold      strict.Field[string]    `yaml:"hold,required" doc:"when a request has cost its estimate if Envoy reports no end, such as 10m; at least 1s, and longer than any request. Required"`
	OnUnknown strict.Field[onUnknown] `yaml:"on_unknown" doc:"what a request costs if its end names no cost: estimate, or {bytes: 0.25} for each byte of the response, at most the estimate. Default: estimate"`
}

// onUnknown is the cost of each byte; zero: the estimate.
type onUnknown float64

// onBytes is the mapping of an onUnknown.
type onBytes struct {
	Bytes strict.Field[string] `yaml:"bytes,required" doc:"the cost of a byte of the response, such as 0.25. Required"`
}

func (u *onUnknown) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	*u = 0
	if n.Kind != yaml.MappingNode {
		var text string
		if d.Decode(n, reflect.ValueOf(&text).Elem(), p); text != "" && text != onEstimate {
			d.Problem(d.Position(n, p), "%s is not %s or {bytes: 0.25}", d.Quote(text), onEstimate)
		}
		return
	}
	var b onBytes
	d.Decode(n, reflect.ValueOf(&b).Elem(), p)
	if !strict.Given(&b.Bytes) {
		return
	}
	factor, err := strconv.ParseFloat(b.Bytes.Value, 64)
	if err != nil || !(factor > 0 && factor <= maxPerByte) {
		d.Problem(b.Bytes.Position, "%s is not a cost above 0 and up to %d, such as 0.25", d.Quote(b.Bytes.Value), maxPerByte)
	}
	*u = onUnknown(factor)
}

// starts says where periods of a calendar start. What it does not set is the first there is; a
// week starts on Monday.
type starts struct {
	Month   strict.Field[string] `yaml:"month" doc:"of a quarter or a year: 1 to 12, or an English name. Default: January"`
	Day     strict.Field[int]    `yaml:"day" doc:"of a month, a quarter or a year; a shorter month has its last day. Default: 1"`
	Weekday strict.Field[string] `yaml:"weekday" doc:"of a week: an English name. Default: Monday"`
	Hour    strict.Field[int]    `yaml:"hour" doc:"0 to 23. Default: 0"`
	Minute  strict.Field[int]    `yaml:"minute" doc:"0 to 59. Default: 0"`
}

type terms struct {
	limit
	Limits    strict.Field[[]strict.Field[limit]] `yaml:"limits" doc:"several limits; all must have quota left, and all are charged or none. At most 48"`
	Unlimited strict.Field[strict.Truth]          `yaml:"unlimited" doc:"whether the rule matches and limits nothing. Default: false"`
	Observe   strict.Field[string]                `yaml:"observe" doc:"shadow mode for a part of the customers: true, false or a percentage such as 90%. With by_tier, for each tier without it. Default: false"`
}

type rateLimit struct {
	terms
	Name         strict.Field[strict.Blankable]                    `yaml:"name" doc:"the name in headers, metrics, logs and replaces, such as per-key; at most 64 characters: letters, digits, and _ . - (others become -). Default: the path of the rule"`
	Replaces     strict.Field[[]strict.Field[replacement]]         `yaml:"replaces" doc:"the names of rules that this one replaces in the same request, such as [{name: per-team}]"`
	Subject      strict.Field[string]                              `yaml:"subject" doc:"the key of the entry that says who is limited, in any descriptor of the request. Default: with by_tier the rule's own entry, otherwise the first one with an API key"`
	ByTier       strict.Field[strict.Ordered[strict.Field[terms]]] `yaml:"by_tier" doc:"the limits of each tier, such as {pro: {unit: day, requests_per_unit: 50}}; default is for all tiers that are not listed"`
	Charge       strict.Field[string]                              `yaml:"charge" doc:"allowed: a denied request uses no quota. always: a usage update is recorded even above the limit, by up to one limit more. Default: allowed"`
	Cost         strict.Field[uint64]                              `yaml:"cost" doc:"multiplies the cost of each request, such as 10. Default: 1"`
	ChargeOnce   strict.Field[*chargeOnce]                         `yaml:"charge_once" doc:"retries with the same idempotency key are charged once, and answered as the first request"`
	OnStoreError strict.Field[string]                              `yaml:"on_store_error" doc:"what a request gets if the store does not decide: local (this instance's part of the limit), allow, deny, or report (the call fails, and Envoy decides). Default: store.on_error of the settings"`
	Scope        strict.Field[string]                              `yaml:"scope" doc:"the store that counts: region, or a name in store.scopes of the settings, such as global. Default: region"`
	Priority     strict.Field[string]                              `yaml:"priority" doc:"low, normal or high: which requests Redis decides first, and rls refuses last, if too many wait. Of several rules the highest applies. Default: normal"`
	RetryJitter  strict.Field[string]                              `yaml:"retry_jitter" doc:"denied clients wait longer by up to this percentage, such as 20%, each customer by another, so that they do not return together. Default: 0%"`
	ClientRetry  strict.Field[string]                              `yaml:"client_retry" doc:"auto: x-should-retry: false asks denied clients not to send the request again if the wait is above 120s, or if no wait helps. never: it asks all. Default: auto"`
	Body         strict.Field[body]                                `yaml:"body" doc:"the body of a denial as a kind of client reads it: openai, anthropic, grpc, mcp or problem. Any other text, of at most 16 KiB, is the body itself; {text: openai} is that word. Default: the form of the route, otherwise problem"`
	ContentType  strict.Field[string]                              `yaml:"content_type" doc:"the content type of body. Default: text/plain; charset=utf-8"`
}

// body is a form or a text.
type body struct {
	form  rules.Form
	text  string
	plain bool // not {text: …}
}

// bodyText is a text that may be the name of a form.
type bodyText struct {
	Text strict.Field[string] `yaml:"text,required" doc:"the body itself, of at most 16 KiB. Required"`
}

func (b *body) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	*b = body{}
	if n.Kind == yaml.MappingNode {
		var t bodyText
		d.Decode(n, reflect.ValueOf(&t).Elem(), p)
		b.text = t.Text.Value
		return
	}
	b.plain = true
	d.Decode(n, reflect.ValueOf(&b.text).Elem(), p)
	if b.form = rules.ParseForm(b.text); b.form != rules.FormUnset {
		b.text = ""
	}
}

type chargeOnce struct {
	Entry   strict.Field[string] `yaml:"entry,required" doc:"the key of the entry with the idempotency key, such as idempotency_key; one for all rules of the domain. Required"`
	For     strict.Field[string] `yaml:"for" doc:"how long a charge covers retries, 1s to 1d. Default: 10m"`
	Retries strict.Field[int]    `yaml:"retries" doc:"how many retries a charge covers, 1 to 100. Default: 3"`
}

// Bounds on the metadata of one rule. Every answer carries it while the rule has room.
const (
	maxMetadataValues = 1000
	maxMetadataBytes  = 16 << 10
)

// metadata is a mapping of any values that JSON has.
type metadata map[string]any

func (m *metadata) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	*m = nil
	if strict.IsNull(n) {
		return
	}
	var fits bool
	if *m, fits = d.JSONMapping(n, p, maxMetadataValues, maxMetadataBytes); !fits {
		metadataTooLarge(d, d.Position(n, p))
	}
}

func metadataTooLarge(d *strict.Decoder, at strict.Position) {
	d.Problem(at, "more than %d values or %d KiB: it is in every answer", maxMetadataValues, maxMetadataBytes>>10)
}

type replacement struct {
	Name strict.Field[strict.Blankable] `yaml:"name,required" doc:"the name of a rule. Required"`
}

// PortableKeys are the keys of envoyproxy/ratelimit. It accepts any of them at any level, and
// ignores those without a meaning there.
var PortableKeys = []string{
	"domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces",
	"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

var homes = sync.OnceValue(func() map[string]string {
	homes := make(map[string]string)
	for _, level := range []struct {
		shape reflect.Type
		where string
	}{
		{reflect.TypeFor[descriptorEntry](), "in a descriptor, next to its key"},
		{reflect.TypeFor[rateLimit](), "in rate_limit"},
		{reflect.TypeFor[rulesDoc](), "at the top, next to domain"},
	} {
		for _, k := range strict.KeysOf(level.shape) {
			if homes[k.Name] == "" {
				homes[k.Name] = level.where
			}
		}
	}
	return homes
})

// IsKey reports whether rules have a key, at any level.
func IsKey(name string) bool { return homes()[name] != "" }

// misplaced returns the advice for a key that a level does not have. If envoyproxy/ratelimit
// has the level, its keys are ignored there, as it does.
func misplaced(key string, portableLevel bool) strict.KeyAdvice {
	home := homes()[key]
	switch {
	case key == "tests":
		return strict.KeyAdvice{Message: `"tests" is a key of tests, and a directory of rules holds rules only: put the tests into another directory, for rls test`}
	case key == "unit_multiplier":
		return strict.KeyAdvice{Message: `"unit_multiplier" is not a key of rules: write window and requests`}
	case home == "":
		return strict.KeyAdvice{}
	case portableLevel && slices.Contains(PortableKeys, key):
		return strict.KeyAdvice{Message: fmt.Sprintf("%q is ignored here, as envoyproxy/ratelimit does: it belongs %s", key, home), Ignored: true}
	}
	return strict.KeyAdvice{Message: fmt.Sprintf("%q has no meaning here: it belongs %s", key, home)}
}

func (*rulesDoc) AdviseKey(key string) strict.KeyAdvice        { return misplaced(key, true) }
func (*descriptorEntry) AdviseKey(key string) strict.KeyAdvice { return misplaced(key, true) }
func (*rateLimit) AdviseKey(key string) strict.KeyAdvice       { return misplaced(key, true) }
func (*replacement) AdviseKey(key string) strict.KeyAdvice     { return misplaced(key, true) }
func (*budget) AdviseKey(key string) strict.KeyAdvice          { return misplaced(key, false) }
func (*limit) AdviseKey(key string) strict.KeyAdvice           { return misplaced(key, false) }
func (*terms) AdviseKey(key string) strict.KeyAdvice           { return misplaced(key, false) }
