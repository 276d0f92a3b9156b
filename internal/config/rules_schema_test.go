package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestSchema compares the schema in docs with that of the types.
func TestSchema(t *testing.T) { compareSchema(t, "../../../docs/rules.schema.json", makeRulesSchema()) }

// specialSchema returns the schema of a type that is read in a way of its own, or nil.
func specialSchema(s *schemas, t reflect.Type) object {
	switch t {
	case reflect.TypeFor[truth]():
		return object{"anyOf": []any{object{"type": []any{"boolean", "null"}}, words}}
	case reflect.TypeFor[metadata]():
		return object{"type": []any{"object", "null"}, "maxProperties": maxMetadataValues}
	case reflect.TypeFor[storeError]():
		return object{"anyOf": []any{s.fields["choice"], s.struc(t)}}
	case reflect.TypeFor[blankable]():
		return object{"type": append([]any{"null"}, text...)}
	}
	return nil
}

// fieldSchemas are those of fields whose type does not tell all.
func fieldSchemas() map[string]object {
	var anyCase []string
	var names []any
	for _, u := range units {
		var letters strings.Builder
		for _, c := range u.name {
			letters.WriteString("[" + string(c) + strings.ToUpper(string(c)) + "]")
		}
		anyCase = append(anyCase, letters.String())
		names = append(names, u.name, strings.ToUpper(u.name))
	}
	styles := object{"enum": []any{StyleRateLimit, StyleDraft03, StyleXRateLimit, StyleXRateLimitEpoch}}
	return map[string]object{
		"domain":            {"type": text, "not": object{"const": ""}},
		"name":              {"type": append([]any{"null"}, text...), "not": object{"const": reservedName}},
		"replacement.name":  {"type": text, "not": object{"const": ""}},
		"key":               {"type": text, "not": object{"const": ""}},
		"headers":           {"type": []any{"array", "null"}, "items": styles, "uniqueItems": true},
		"unit":              {"anyOf": []any{object{"enum": names}, object{"type": "string", "pattern": "^(" + strings.Join(anyCase, "|") + ")$"}}},
		"window":            duration,
		"requests_per_unit": {"type": "integer", "minimum": 0, "maximum": window.MaxHits},
		"requests":          {"type": "integer", "minimum": 0, "maximum": window.MaxHits},
		"cost":              {"type": "integer", "minimum": 1, "maximum": window.MaxHits},
		"precision":         {"anyOf": []any{object{"enum": []any{autoPrecision}}, duration}},
		"lease":             {"anyOf": []any{object{"enum": []any{noLease}}, duration, object{"type": "string", "pattern": `^[0-9.]+ *%$`}}},
		"observe":           {"anyOf": []any{object{"type": "boolean"}, words, object{"type": "string", "pattern": `^[0-9.]+ *%$`}}},
		"charge":            {"enum": []any{"allowed", "always"}},
		"choice":            {"enum": []any{"local", "allow", "deny", "report"}},
		"retry_after":       duration,
		"limits":            {"minItems": 1},
		"by_tier":           {"minProperties": 1},
		"body":              {"maxLength": maxBody, "minLength": 1},
		"status_text":       {"maxLength": maxOneLiner, "minLength": 1},
		"content_type":      {"maxLength": maxOneLiner, "minLength": 1},
		"subject":           {"minLength": 1},
	}
}

func makeRulesSchema() object {
	s := schemas{fields: fieldSchemas(), special: specialSchema, definitions: object{}}
	root := s.struc(reflect.TypeFor[rulesDoc]())
	root["$schema"], root["title"] = draft, "Rules of Slidegate: one domain"
	root["definitions"] = s.definitions
	return root
}
