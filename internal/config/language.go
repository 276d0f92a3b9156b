package config

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"go.yaml.in/yaml/v4"
)

// This file is the shape of rules files: which keys there are, where, and of
// which type. The doc tags are the descriptions in docs/rules.schema.json.

// rulesDoc is one domain.
type rulesDoc struct {
	Domain      field[string]            `yaml:"domain,required" doc:"the domain of the requests that the rules are for"`
	Headers     field[[]string]          `yaml:"headers" doc:"the styles of headers on the domain's answers, instead of headers.styles of the settings"`
	Descriptors []field[descriptorEntry] `yaml:"descriptors" doc:"rules for the first entry of a descriptor"`
}

// descriptorEntry is one node of the rule tree. There are many of them: what most
// have not is behind a pointer.
type descriptorEntry struct {
	Key            field[string]            `yaml:"key,required" doc:"the key of the entry"`
	Value          field[blankable]         `yaml:"value" doc:"the value of the entry; each * stands for any number of bytes; without it any value"`
	RateLimit      field[*rateLimit]        `yaml:"rate_limit" doc:"limits descriptors that end here; without it nothing is limited here"`
	ShareThreshold field[truth]             `yaml:"share_threshold" doc:"all values that the wildcard takes share one log"`
	ShadowMode     field[truth]             `yaml:"shadow_mode" doc:"the rate_limit is only observed: decided and reported, but it denies nothing"`
	QuotaMode      field[truth]             `yaml:"quota_mode" doc:"the rate_limit is one of several alternatives: of all those of a request at least one must have room"`
	DetailedMetric field[truth]             `yaml:"detailed_metric" doc:"metrics have a series for every value of every entry"`
	ValueToMetric  field[truth]             `yaml:"value_to_metric" doc:"metrics have a series for every value of this entry"`
	Metadata       field[metadata]          `yaml:"metadata" doc:"returned as dynamic metadata while the rate_limit has room"`
	Descriptors    []field[descriptorEntry] `yaml:"descriptors" doc:"rules for the next entry of the descriptor"`
}

// limit is one limit in either notation.
type limit struct {
	Unit            field[string] `yaml:"unit" doc:"second, minute, hour, day, week, month (30 days) or year (365 days), in any case"`
	RequestsPerUnit field[uint64] `yaml:"requests_per_unit" doc:"how many requests any interval of that length may hold"`
	Window          field[string] `yaml:"window" doc:"the length of the interval, such as 10s, 1h30m or 7d"`
	Requests        field[uint64] `yaml:"requests" doc:"how many requests any interval of that length may hold"`
	Precision       field[string] `yaml:"precision" doc:"what times are rounded up to: auto, 0 (exact) or a time; beside limits and by_tier, for all that have none of their own"`
	Lease           field[string] `yaml:"lease" doc:"what an instance may reserve ahead on a key that is asked for often: a time such as 50ms, a percentage of the limit, or none; beside limits and by_tier, for all that have none of their own"`
}

// terms are one limit or several, or none on purpose.
type terms struct {
	limit
	Limits    field[[]field[limit]] `yaml:"limits" doc:"several limits; all must have room"`
	Unlimited field[truth]          `yaml:"unlimited" doc:"the rule matches and limits nothing"`
	Observe   field[string]         `yaml:"observe" doc:"the share of subjects for whom the limits are only observed: true, false or a percentage; beside by_tier, for every tier that has none of its own"`
}

type rateLimit struct {
	terms
	Name         field[blankable]             `yaml:"name" doc:"what statuses, headers, metadata, metrics, bodies and replaces call the rule"`
	Replaces     field[[]field[replacement]]  `yaml:"replaces" doc:"names of rules that do not count where this one matches in the same request"`
	Subject      field[string]                `yaml:"subject" doc:"the key of the entry that says who is limited, and so whose tier counts"`
	ByTier       field[ordered[field[terms]]] `yaml:"by_tier" doc:"limits for each tier; default is for every tier that is not named"`
	Charge       field[string]                `yaml:"charge" doc:"allowed: a denied request costs nothing; always: what is reported is recorded, even over the limit"`
	Cost         field[uint64]                `yaml:"cost" doc:"what the cost of every request is multiplied by"`
	OnStoreError field[storeError]            `yaml:"on_store_error" doc:"what becomes of a request whose store cannot decide: local for this instance's share of the limit, allow, deny, or report to leave it to Envoy; or a mapping with the choice and what belongs to it; the default is store.on_error"`
	Body         field[string]                `yaml:"body" doc:"the body of a denial"`
	ContentType  field[string]                `yaml:"content_type" doc:"the content type of body"`
	StatusText   field[string]                `yaml:"status_text" doc:"the title of the denial's problem document"`
}

// storeError is a choice alone, or a mapping with what belongs to it.
type storeError struct {
	Choice     field[string] `yaml:"choice,required" doc:"local for this instance's share of the limit, allow, deny, or report to leave it to Envoy"`
	RetryAfter field[string] `yaml:"retry_after" doc:"of deny: the wait that Retry-After tells, such as 5s"`
}

func (s *storeError) readNode(d *decoder, n *yaml.Node, p *path) {
	if n.Kind == yaml.MappingNode {
		d.object(n, reflect.ValueOf(s).Elem(), p)
		return
	}
	s.Choice.readLocated(d, n, p)
}

// Bounds on the metadata of one rule. Every answer carries it while the rule has room.
const (
	maxMetadataValues = 1000
	maxMetadataBytes  = 16 << 10
)

// metadata is a mapping of any values that JSON has.
type metadata map[string]any

func (m *metadata) readNode(d *decoder, n *yaml.Node, p *path) {
	*m = nil
	if isNull(n) {
		return
	}
	var fits bool
	if *m, fits = d.jsonMapping(n, p, maxMetadataValues, maxMetadataBytes); !fits {
		d.problem(d.spot(n, p), "more than %d values or %d KiB: it is in every answer", maxMetadataValues, maxMetadataBytes>>10)
	}
}

type replacement struct {
	Name field[blankable] `yaml:"name,required" doc:"the name of a rule"`
}

// ofReference are the keys of envoyproxy/ratelimit. It takes any of them at any
// level, and ignores those that have no meaning there.
var ofReference = []string{
	"domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces",
	"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// homes says where keys of rules files belong.
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
		for _, k := range KeysOf(level.shape) {
			if homes[k.Name] == "" {
				homes[k.Name] = level.where
			}
		}
	}
	return homes
})

// misplaced says what is wrong with a key that a level lacks. Where the level is
// one of envoyproxy/ratelimit, its keys are ignored, since such files load there.
func misplaced(key string, levelOfReference bool) keyAdvice {
	home := homes()[key]
	switch {
	case key == "unit_multiplier":
		return keyAdvice{message: `"unit_multiplier" is not a key of rules: write window and requests`}
	case home == "":
		return keyAdvice{}
	case levelOfReference && slices.Contains(ofReference, key):
		return keyAdvice{message: fmt.Sprintf("%q is ignored here, as envoyproxy/ratelimit does: it belongs %s", key, home), ignored: true}
	}
	return keyAdvice{message: fmt.Sprintf("%q has no meaning here: it belongs %s", key, home)}
}

func (*rulesDoc) judgeKey(key string) keyAdvice        { return misplaced(key, true) }
func (*descriptorEntry) judgeKey(key string) keyAdvice { return misplaced(key, true) }
func (*rateLimit) judgeKey(key string) keyAdvice       { return misplaced(key, true) }
func (*replacement) judgeKey(key string) keyAdvice     { return misplaced(key, true) }
func (*limit) judgeKey(key string) keyAdvice           { return misplaced(key, false) }
func (*terms) judgeKey(key string) keyAdvice           { return misplaced(key, false) }
