package rules

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// This file is the shape of rules files: which keys there are, where, and of
// which type. The doc tags are the descriptions in docs/rules.schema.json.

// rulesDoc is one domain.
type rulesDoc struct {
	Domain      strict.Field[string]            `yaml:"domain,required" doc:"the domain of the requests that the rules are for"`
	Policy      strict.Field[string]            `yaml:"policy" doc:"how the limits of the document count that have no policy: sliding, fixed or sliding_counter; without it rules.policy of the settings"`
	Headers     strict.Field[[]string]          `yaml:"headers" doc:"the styles of headers on the domain's answers, instead of headers.styles of the settings"`
	Descriptors []strict.Field[descriptorEntry] `yaml:"descriptors" doc:"rules for the first entry of a descriptor"`
}

// descriptorEntry is one node of the rule tree. There are many, so a rare part is behind a
// pointer.
type descriptorEntry struct {
	Key            strict.Field[string]            `yaml:"key,required" doc:"the key of the entry"`
	Value          strict.Field[strict.Blankable]  `yaml:"value" doc:"the value of the entry; each * stands for any number of bytes; without it any value"`
	RateLimit      strict.Field[*rateLimit]        `yaml:"rate_limit" doc:"limits descriptors that end here; without it nothing is limited here"`
	ShareThreshold strict.Field[strict.Truth]      `yaml:"share_threshold" doc:"all values that the wildcard takes share one log"`
	ShadowMode     strict.Field[strict.Truth]      `yaml:"shadow_mode" doc:"the rate_limit is only observed: decided and reported, but it denies nothing"`
	QuotaMode      strict.Field[strict.Truth]      `yaml:"quota_mode" doc:"the rate_limit is one of several alternatives: of all those of a request at least one must have room"`
	DetailedMetric strict.Field[strict.Truth]      `yaml:"detailed_metric" doc:"metrics have a series for every value of every entry"`
	ValueToMetric  strict.Field[strict.Truth]      `yaml:"value_to_metric" doc:"as in envoyproxy/ratelimit: metrics have a series for every value of this entry"`
	Metadata       strict.Field[metadata]          `yaml:"metadata" doc:"returned as dynamic metadata while the rate_limit has room"`
	Descriptors    []strict.Field[descriptorEntry] `yaml:"descriptors" doc:"rules for the next entry of the descriptor"`
}

// limit is one limit in the notation of its policy. [policyKeys] has the keys of each.
type limit struct {
	Unit            strict.Field[string]  `yaml:"unit" doc:"second, minute, hour, day, week, month (30 days) or year (365 days), in any case; of a calendar: hour, day, week, month, quarter or year"`
	RequestsPerUnit strict.Field[uint64]  `yaml:"requests_per_unit" doc:"how many requests a unit may hold; with the policy sliding: any interval of that length"`
	Window          strict.Field[string]  `yaml:"window" doc:"the length of the interval, such as 10s, 1h30m or 7d"`
	Requests        strict.Field[uint64]  `yaml:"requests" doc:"how many requests a window may hold; with the policy sliding: any interval of that length"`
	Precision       strict.Field[string]  `yaml:"precision" doc:"with the policy sliding, what times are rounded up to: auto, 0 (exact) or a time; beside limits and by_tier, for all that have none of their own"`
	Lease           strict.Field[string]  `yaml:"lease" doc:"with the policy sliding, what an instance may reserve ahead on a key that is asked for often: a time such as 50ms, a percentage of the limit, or none; beside limits and by_tier, for all that have none of their own"`
	Policy          strict.Field[string]  `yaml:"policy" doc:"how the limit counts: sliding, token_bucket, fixed, calendar, sliding_counter or in_flight; beside limits and by_tier, for all that have none of their own; without it that of the document, else rules.policy of the settings"`
	Rate            strict.Field[string]  `yaml:"rate" doc:"of a token_bucket: how many requests come back in which time, such as 10/s, 600/m or 5/100ms"`
	Burst           strict.Field[uint64]  `yaml:"burst" doc:"of a token_bucket: the most requests at once"`
	TimeZone        strict.Field[string]  `yaml:"time_zone" doc:"of a calendar: a name of the IANA database such as Europe/Berlin; without it UTC; beside limits and by_tier, for all that have none of their own"`
	Starts          strict.Field[*starts] `yaml:"starts" doc:"of a calendar: where in the local clock its periods start; beside limits and by_tier, for all that have none of their own"`
	StartsLabel     strict.Field[string]  `yaml:"starts_label" doc:"of a calendar: the label of the subject that says on which day its periods start, instead of starts; beside limits and by_tier, for all that have none of their own"`
	Max             strict.Field[uint64]  `yaml:"max" doc:"of in_flight: the most requests that are under way at the same time"`
	Hold            strict.Field[string]  `yaml:"hold" doc:"of in_flight: when a request counts as ended whose end was never reported, such as 5m; beside limits and by_tier, for all that have none of their own"`
}

// starts says where periods of a calendar start. What it does not set is the first there is; a
// week starts on Monday.
type starts struct {
	Month   strict.Field[string] `yaml:"month" doc:"the month in which a year or one of the quarters starts: 1 to 12, or an English name"`
	Day     strict.Field[int]    `yaml:"day" doc:"the day of the month on which a month, a quarter or a year starts; a shorter month has its last day instead"`
	Weekday strict.Field[string] `yaml:"weekday" doc:"the day on which a week starts: an English name"`
	Hour    strict.Field[int]    `yaml:"hour" doc:"the hour at which a day or a longer period starts, 0 to 23"`
	Minute  strict.Field[int]    `yaml:"minute" doc:"the minute at which a period starts, 0 to 59"`
}

// terms are one limit, several limits, or unlimited.
type terms struct {
	limit
	Limits    strict.Field[[]strict.Field[limit]] `yaml:"limits" doc:"several limits; all must have room"`
	Unlimited strict.Field[strict.Truth]          `yaml:"unlimited" doc:"the rule matches and limits nothing"`
	Observe   strict.Field[string]                `yaml:"observe" doc:"the share of subjects for whom the limits are only observed: true, false or a percentage; beside by_tier, for every tier that has none of its own"`
}

type rateLimit struct {
	terms
	Name         strict.Field[strict.Blankable]                    `yaml:"name" doc:"what statuses, headers, metadata, metrics, bodies and replaces call the rule"`
	Replaces     strict.Field[[]strict.Field[replacement]]         `yaml:"replaces" doc:"names of rules that do not count where this one matches in the same request"`
	Subject      strict.Field[string]                              `yaml:"subject" doc:"the key of the entry that says who is limited, and so whose tier counts"`
	ByTier       strict.Field[strict.Ordered[strict.Field[terms]]] `yaml:"by_tier" doc:"limits for each tier; default is for every tier that is not named"`
	Charge       strict.Field[string]                              `yaml:"charge" doc:"allowed: a denied request costs nothing; always: what is reported is recorded, even over the limit, up to one limit more. The default is allowed"`
	Cost         strict.Field[uint64]                              `yaml:"cost" doc:"what the cost of every request is multiplied by"`
	ChargeOnce   strict.Field[*chargeOnce]                         `yaml:"charge_once" doc:"requests with the same idempotency key are charged once, and answered as the first one was"`
	OnStoreError strict.Field[string]                              `yaml:"on_store_error" doc:"what becomes of a request whose store cannot decide: local for this instance's share of the limit, allow, deny, or report to leave it to Envoy; the default is store.on_error"`
	Scope        strict.Field[string]                              `yaml:"scope" doc:"the store in which the limits count: region, or a name in store.scopes of the settings, such as global; without it region"`
	Priority     strict.Field[string]                              `yaml:"priority" doc:"low, normal or high: of the requests that wait for the store, it decides those of high first; if too many wait, on_store_error decides those of low at once; of several rules the highest counts; without it normal"`
	RetryJitter  strict.Field[string]                              `yaml:"retry_jitter" doc:"clients are asked to wait longer by up to this percentage, each subject by another, so that they do not all come back at once; 0%, the default: no longer than they must"`
	Body         strict.Field[string]                              `yaml:"body" doc:"the body of a denial"`
	ContentType  strict.Field[string]                              `yaml:"content_type" doc:"the content type of body"`
}

// chargeOnce says which requests are one attempt.
type chargeOnce struct {
	Entry   strict.Field[string] `yaml:"entry,required" doc:"the key of the entry with the idempotency key, one for all rules of the domain; it decides no rule and no log, and may be missing"`
	For     strict.Field[string] `yaml:"for" doc:"how long a charge covers retries, 1s to 1d; the default is 10m"`
	Retries strict.Field[int]    `yaml:"retries" doc:"how many retries one charge covers, 1 to 100, and each further one is charged; the default is 3"`
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
		metadataTooLarge(d, d.Spot(n, p))
	}
}

func metadataTooLarge(d *strict.Decoder, at strict.Spot) {
	d.Problem(at, "more than %d values or %d KiB: it is in every answer", maxMetadataValues, maxMetadataBytes>>10)
}

type replacement struct {
	Name strict.Field[strict.Blankable] `yaml:"name,required" doc:"the name of a rule"`
}

// ofReference are the keys of envoyproxy/ratelimit. It accepts any of them at any level, and
// ignores those without a meaning there.
var ofReference = []string{
	"domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces",
	"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// homes returns where each key of rules files belongs.
var homes = sync.OnceValue(func() map[string]string {
	homes := make(map[string]string)
	for _, level := range []struct {
		shape reflect.Type
		where string
	}{
		{reflect.TypeFor[descriptorEntry](), "in a descriptor, beside its key"},
		{reflect.TypeFor[rateLimit](), "in rate_limit"},
		{reflect.TypeFor[rulesDoc](), "at the top, beside domain"},
	} {
		for _, k := range strict.KeysOf(level.shape) {
			if homes[k.Name] == "" {
				homes[k.Name] = level.where
			}
		}
	}
	return homes
})

// gone has what to write instead of keys that rules do not have.
var gone = map[string]string{
	"unit_multiplier": "write window and requests",
	"divide":          "write the part of one region as the limit",
	"status_text":     "write body, with content_type",
}

// misplaced returns the advice for a key that a level does not have. If envoyproxy/ratelimit
// has the level, its keys are ignored there, as it does.
func misplaced(key string, levelOfReference bool) strict.KeyAdvice {
	home := homes()[key]
	switch {
	case key == "tests":
		return strict.KeyAdvice{Message: `"tests" is a key of tests, and a directory of rules holds rules only: put the tests beside it, for rls test`}
	case gone[key] != "":
		return strict.KeyAdvice{Message: fmt.Sprintf("%q is not a key of rules: %s", key, gone[key])}
	case home == "":
		return strict.KeyAdvice{}
	case levelOfReference && slices.Contains(ofReference, key):
		return strict.KeyAdvice{Message: fmt.Sprintf("%q is ignored here, as envoyproxy/ratelimit does: it belongs %s", key, home), Ignored: true}
	}
	return strict.KeyAdvice{Message: fmt.Sprintf("%q has no meaning here: it belongs %s", key, home)}
}

func (*rulesDoc) AdviseKey(key string) strict.KeyAdvice        { return misplaced(key, true) }
func (*descriptorEntry) AdviseKey(key string) strict.KeyAdvice { return misplaced(key, true) }
func (*rateLimit) AdviseKey(key string) strict.KeyAdvice       { return misplaced(key, true) }
func (*replacement) AdviseKey(key string) strict.KeyAdvice     { return misplaced(key, true) }
func (*limit) AdviseKey(key string) strict.KeyAdvice           { return misplaced(key, false) }
func (*terms) AdviseKey(key string) strict.KeyAdvice           { return misplaced(key, false) }
