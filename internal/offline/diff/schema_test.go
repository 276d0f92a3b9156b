package diff_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/diff"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/test/configtest"
)

const schemaFile = "../../../docs/diff.schema.json"

type object = configtest.Object

// words are the values of members that have few.
var words = map[string][]string{
	"Verdict":            {"stricter", "looser", "both", "neither"},
	"RuleChange.What":    {"added", "removed", "changed"},
	"DomainChange.What":  {"added", "removed", "headers"},
	"TierChange.What":    {"added", "removed", "default"},
	"SubjectChange.What": {"added", "removed", "tier", "disabled", "enabled", "keys", "labels", "limits"},
	"Change.History":     {diff.Kept, diff.Empty, diff.Partly},
	"LiveLimit.History":  {diff.Kept, diff.Empty},
}

// schemaOf returns the schema of a type, and adds those of structs to definitions.
func schemaOf(definitions object, t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(definitions, t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(definitions, t.Elem())}
	case reflect.String:
		if all := words[t.Name()]; all != nil {
			return object{"enum": all}
		}
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Struct:
	default:
		panic("no schema for " + t.String())
	}
	if definitions[t.Name()] == nil {
		properties, required := object{}, []any{}
		definitions[t.Name()] = object{"type": "object", "additionalProperties": false, "properties": properties, "required": &required}
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				panic(t.Name() + "." + f.Name + " has no JSON name")
			}
			properties[name] = schemaOf(definitions, f.Type)
			if all := words[t.Name()+"."+f.Name]; all != nil {
				properties[name] = object{"enum": all}
			}
			if options != "omitempty" {
				required = append(required, name)
			}
		}
	}
	return object{"$ref": "#/definitions/" + t.Name()}
}

// TestSchema compares docs/diff.schema.json with the types, and reports with it.
func TestSchema(t *testing.T) {
	definitions := object{}
	schema := object{
		"$schema": configtest.Draft, "title": "The output of rls diff --json",
		"allOf": []any{schemaOf(definitions, reflect.TypeFor[diff.Report]())}, "definitions": definitions,
	}
	configtest.CompareSchema(t, schemaFile, schema)

	rules := "domain: d\ndescriptors:\n  - {key: api_key, rate_limit: {name: r0, by_tier: {free: {window: 1m, requests: 5}, pro: {window: 1m, requests: 50}}}}\n  - {key: gone, rate_limit: {window: 1m, requests: 1}}\n"
	now := "domain: d\nheaders: [draft03]\ndescriptors:\n  - {key: api_key, rate_limit: {name: r0, window: 1h, requests: 1}}\n  - {key: gone, value: not, rate_limit: {window: 1m, requests: 1}}\n---\ndomain: e\n"
	people := strings.NewReplacer("tiers: [free, pro]", "tiers: [free, pro, gold]", "default: free", "default: gold", "id: acme, tier: pro", "id: acme, tier: gold", "requests: 7", "requests: 8").Replace(tiers)
	old, is := mustLoad(t, tiers, rules), mustLoad(t, people, now)
	r := diff.Compare(old, is)
	r.AddLive(old, is, [][]insight.LimitUsage{{{Path: "d|api_key", Terms: insight.Terms{Policy: "sliding", Limit: 5, Window: 60}, Counter: insight.Counter{Used: 5}, LogName: insight.LogName{Subject: "acme"}}}}, []string{"one"})
	for _, report := range []*diff.Report{r, diff.Compare(old, old)} {
		data, err := json.MarshalIndent(report, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "report.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		configtest.Valid(t, schemaFile, file, true)
	}
	if len(r.Domains)*len(r.Rules)*len(r.Matches)*len(r.Tiers)*len(r.Subjects)*len(r.Live.Limits) == 0 {
		t.Errorf("a part of the report is empty: %+v", r)
	}
}
