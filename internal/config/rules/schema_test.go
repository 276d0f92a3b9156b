package rules

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestSchema compares the schema in docs with that of the types.
func TestSchema(t *testing.T) {
	configtest.Described(t, makeRulesSchema())
	configtest.CompareSchema(t, "../../../docs/rules.schema.json", makeRulesSchema())
}

// specialSchema returns the schema of a type that is read in a way of its own, or nil.
func specialSchema(s *configtest.Schemas, t reflect.Type) configtest.Object {
	switch t {
	case reflect.TypeFor[strict.Truth]():
		return configtest.Object{"anyOf": []any{configtest.Object{"type": []any{"boolean", "null"}}, configtest.Words}}
	case reflect.TypeFor[body]():
		return configtest.Object{"anyOf": []any{configtest.Object{"type": configtest.Text, "maxLength": maxBody, "minLength": 1}, s.Of(reflect.TypeFor[bodyText]())}}
	case reflect.TypeFor[onUnknown]():
		return configtest.Object{"anyOf": []any{configtest.Object{"enum": []any{onEstimate}}, s.Of(reflect.TypeFor[onBytes]())}}
	case reflect.TypeFor[metadata]():
		return configtest.Object{"type": []any{"object", "null"}, "maxProperties": maxMetadataValues}
	case reflect.TypeFor[strict.Blankable]():
		return configtest.Object{"type": append([]any{"null"}, configtest.Text...)}
	}
	return nil
}

// fieldSchemas are those of fields whose type does not say all.
func fieldSchemas() map[string]configtest.Object {
	var anyCase []string
	var names []any
	for _, u := range append(units, struct {
		name   string
		length time.Duration
	}{"quarter", calendar.Quarter.Nominal()}) {
		var letters strings.Builder
		for _, c := range u.name {
			letters.WriteString("[" + string(c) + strings.ToUpper(string(c)) + "]")
		}
		anyCase = append(anyCase, letters.String())
		names = append(names, u.name, strings.ToUpper(u.name))
	}
	styles := configtest.Object{"enum": []any{rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit, rules.StyleXRateLimitEpoch}}
	return map[string]configtest.Object{
		"domain":            {"type": configtest.Text, "not": configtest.Object{"const": ""}},
		"name":              {"type": append([]any{"null"}, configtest.Text...), "not": configtest.Object{"const": reservedName}},
		"replacement.name":  {"type": configtest.Text, "not": configtest.Object{"const": ""}},
		"key":               {"type": configtest.Text, "not": configtest.Object{"const": ""}},
		"rulesDoc.policy":   {"enum": asAny(policyNames(true))},
		"policy":            {"enum": asAny(policyNames(false))},
		"month":             {"anyOf": []any{configtest.Object{"type": "integer", "minimum": 1, "maximum": 12}, configtest.Object{"type": "string"}}},
		"day":               {"type": "integer", "minimum": 1, "maximum": 31},
		"hour":              {"type": "integer", "minimum": 0, "maximum": 23},
		"minute":            {"type": "integer", "minimum": 0, "maximum": 59},
		"starts_label":      {"minLength": 1},
		"rate":              {"type": "string", "pattern": `^ *[0-9]+ */ *(([0-9.]*(us|µs|ms|s|m|h|d|w))+|` + strings.Join(anyCase, "|") + `) *$`},
		"burst":             {"type": "integer", "minimum": 0, "maximum": int64(window.MaxHits)},
		"max":               {"type": "integer", "minimum": 0, "maximum": window.MaxInFlight},
		"hold":              configtest.Duration,
		"reserve":           {"type": "integer", "minimum": 1, "maximum": int64(rules.MaxCost)},
		"budget.max":        {"type": "integer", "minimum": 1, "maximum": int64(rules.MaxCost)},
		"bytes":             {"anyOf": []any{configtest.Object{"type": "number", "exclusiveMinimum": 0, "maximum": maxPerByte}, configtest.Object{"type": "string", "pattern": "^[0-9.]"}}},
		"currency":          {"type": "string", "pattern": "^[a-z]{3}$"},
		"headers":           {"type": []any{"array", "null"}, "items": styles, "uniqueItems": true},
		"unit":              {"anyOf": []any{configtest.Object{"enum": names}, configtest.Object{"type": "string", "pattern": "^(" + strings.Join(anyCase, "|") + ")$"}}},
		"window":            configtest.Duration,
		"requests_per_unit": {"type": "integer", "minimum": 0, "maximum": int64(window.MaxHits)},
		"requests":          {"type": "integer", "minimum": 0, "maximum": int64(window.MaxHits)},
		"cost":              {"type": "integer", "minimum": 1, "maximum": int64(window.MaxHits)},
		"precision":         {"anyOf": []any{configtest.Object{"enum": []any{autoPrecision}}, configtest.Duration}},
		"lease":             {"anyOf": []any{configtest.Object{"enum": []any{noLease}}, configtest.Duration, configtest.Object{"type": "string", "pattern": `^[0-9.]+ *%$`}}},
		"observe":           {"anyOf": []any{configtest.Object{"type": "boolean"}, configtest.Words, configtest.Object{"type": "string", "pattern": `^[0-9.]+ *%$`}}},
		"charge":            {"enum": []any{"allowed", "always"}},
		"priority":          {"enum": asAny(priorityNames())},
		"on_store_error":    {"enum": []any{"local", "allow", "deny", "report"}},
		"client_retry":      {"enum": []any{"auto", "never"}},
		"limits":            {"minItems": 1, "maxItems": maxLimits},
		"by_tier":           {"minProperties": 1},
		"text":              {"maxLength": maxBody, "minLength": 1},
		"content_type":      {"maxLength": maxContentType, "minLength": 1},
		"subject":           {"minLength": 1},
		"entry":             {"minLength": 1},
		"for":               configtest.Duration,
		"retries":           {"type": "integer", "minimum": 1, "maximum": window.MaxRepeats},
	}
}

func asAny(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

func makeRulesSchema() configtest.Object {
	s := configtest.Schemas{Fields: fieldSchemas(), Special: specialSchema, Definitions: configtest.Object{}}
	root := s.Struc(reflect.TypeFor[rulesDoc]())
	root["$schema"], root["title"] = configtest.Draft, "Rules of Slidegate: one domain"
	root["definitions"] = s.Definitions
	return root
}
