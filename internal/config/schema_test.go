package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/pkg/window"
)

// The schemas, made from the types that the files are read into. Draft 7 is what
// editors know best.
const (
	rulesSchema    = "../../docs/rules.schema.json"
	settingsSchema = "../../docs/settings.schema.json"
	draft          = "http://json-schema.org/draft-07/schema#"
)

type object = map[string]any

// text is what counts as a text: YAML takes some for numbers and truth values.
var text = []any{"string", "number", "boolean"}

// duration is a time as [ParseDuration] reads it.
var duration = object{"anyOf": []any{
	object{"type": "string", "pattern": `^[+-]?(0|([0-9.]+(ns|us|µs|ms|s|m|h|d|w))+)$`},
	object{"const": 0},
}}

// words for true and false that YAML 1.1 has besides these.
var words = object{"enum": []any{"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF", "y", "Y", "n", "N"}}

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

// schemas makes schemas of types.
type schemas struct {
	fields      map[string]object
	definitions object
}

func (s *schemas) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[truth]():
		return object{"anyOf": []any{object{"type": []any{"boolean", "null"}}, words}}
	case reflect.TypeFor[metadata]():
		return object{"type": []any{"object", "null"}, "maxProperties": maxMetadataValues}
	case reflect.TypeFor[storeError]():
		return object{"anyOf": []any{s.fields["choice"], s.struc(t)}}
	case reflect.TypeFor[blankable]():
		return object{"type": append([]any{"null"}, text...)}
	case reflect.TypeFor[time.Duration]():
		return duration
	case reflect.TypeFor[[]string]():
		return object{"anyOf": []any{object{"type": []any{"array", "null"}, "items": object{"type": text}}, object{"type": text}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": text}
	case reflect.Uint64, reflect.Int:
		return object{"type": "integer", "minimum": 0}
	case reflect.Uint32: // FileMode
		return object{"type": text}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct && strings.HasPrefix(t.Elem().Name(), "entry[") {
			value, _ := t.Elem().FieldByName("value")
			return object{"type": []any{"object", "null"}, "additionalProperties": s.of(value.Type)}
		}
		return object{"type": []any{"array", "null"}, "items": s.of(t.Elem())}
	}
	if strings.HasPrefix(t.Name(), "field[") {
		value, _ := t.FieldByName("value")
		return s.of(value.Type)
	}
	if s.definitions[t.Name()] == nil {
		s.definitions[t.Name()] = object{} // it may hold itself
		s.definitions[t.Name()] = s.struc(t)
	}
	return object{"$ref": "#/definitions/" + t.Name()}
}

func (s *schemas) struc(t reflect.Type) object {
	properties, required := object{}, []any{}
	for _, f := range KeysOf(t) {
		name := f.Name
		schema := s.of(f.Field.Type)
		if _, isRef := schema["$ref"]; isRef {
			schema = object{"allOf": []any{schema}}
		}
		whole := object{}
		for k, v := range schema {
			whole[k] = v
		}
		override, own := s.fields[t.Name()+"."+name]
		if !own {
			override = s.fields[name]
		}
		if override["type"] != nil || override["anyOf"] != nil || override["enum"] != nil {
			whole = object{}
		}
		for k, v := range override {
			whole[k] = v
		}
		if doc := f.Field.Tag.Get("doc"); doc != "" {
			whole["description"] = doc
		}
		properties[name] = whole
		if f.Required {
			required = append(required, name)
		}
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if _, limits := properties["requests_per_unit"]; limits {
		schema["dependencies"] = object{"unit": []any{"requests_per_unit"}, "window": []any{"requests"}, "requests": []any{"window"}}
		schema["minProperties"] = 1
		var never []any
		for _, both := range [][]any{{"unit", "window"}, {"limits", "unit"}, {"limits", "window"}} {
			never = append(never, object{"not": object{"type": "object", "required": both}})
		}
		schema["allOf"] = never
	}
	if t == reflect.TypeFor[rateLimit]() {
		schema["type"] = []any{"object", "null"}
	}
	return schema
}

func makeRulesSchema() object {
	s := schemas{fields: fieldSchemas(), definitions: object{}}
	root := s.struc(reflect.TypeFor[rulesDoc]())
	root["$schema"], root["title"] = draft, "Rules of Slidegate: one domain"
	root["definitions"] = s.definitions
	return root
}

func makeSettingsSchema() object {
	s := schemas{definitions: object{}}
	enums := map[string][]any{
		"grpc.transport":          {TransportUnary, TransportStandard},
		"store.on_error":          {"local", "allow", "deny", "report"},
		"http.ready":              {ReadyAlways, ReadyStore},
		"tiers.source":            {TiersNone, TiersFile, TiersInHeader, TiersInRedis, TiersInPostgres, TiersOverHTTP},
		"tiers.unknown_key":       {UnknownKeyShared, UnknownKeyEach},
		"tiers.on_error":          {OnErrorDefaultTier, OnErrorDeny},
		"tiers.postgres.tls.mode": {"", TLSDisable, TLSRequire, TLSVerifyFull},
		"tiers.http.method":       {MethodGet, MethodPost},
		"tiers.http.send":         {SendDigest, SendKey},
		"authz.address":           {AddressPeer, AddressExternal, AddressForwardedFor},
		"store.type":              {StoreMemory, StoreRedis},
		"log.level":               {"debug", "info", "warn", "error"},
		"log.format":              {"json", "console"},
	}
	var section func(v reflect.Value, prefix string) object
	section = func(v reflect.Value, prefix string) object {
		properties := object{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := f.Tag.Get("yaml")
			if f.Type.Kind() == reflect.Struct {
				properties[name] = section(v.Field(i), prefix+name+".")
				continue
			}
			schema := object{"description": f.Tag.Get("doc"), "default": v.Field(i).Interface()}
			for k, of := range s.of(f.Type) {
				schema[k] = of
			}
			switch value := v.Field(i).Interface().(type) {
			case Secret, time.Duration, FileMode:
				schema["default"] = textOf(v.Field(i))
			case []string:
				if value == nil {
					schema["default"] = []string{}
				}
			}
			if enum := enums[prefix+name]; enum != nil {
				delete(schema, "type")
				schema["enum"] = enum
			}
			properties[name] = schema
		}
		return object{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
	}
	d := Default()
	root := section(reflect.ValueOf(&d).Elem(), "")
	root["$schema"], root["title"] = draft, "Settings of Slidegate"
	return root
}

// TestSchemas compares the schemas in docs with those of the types.
func TestSchemas(t *testing.T) {
	for file, make := range map[string]func() object{rulesSchema: makeRulesSchema, settingsSchema: makeSettingsSchema} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(make()); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what the types say: write it with go test ./internal/config -update", file)
		}
	}
}

// TestFilesAgainstSchemas: files that load are valid, and so is what editors
// would say of most of the others.
func TestFilesAgainstSchemas(t *testing.T) {
	var good, bad int
	for _, c := range []struct{ pattern, schema string }{
		{"testdata/good/rules-*.yaml", rulesSchema},
		{"example/rules.yaml", rulesSchema},
		{"testdata/good/settings-*.yaml", settingsSchema},
		{"settings.full.yaml", settingsSchema},
		{"../../docs/examples/*/rules*.yaml", rulesSchema},
		{"../../envoy/rules*.yaml", rulesSchema},
	} {
		files, err := filepath.Glob(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			good++
			valid(t, c.schema, file, true)
		}
	}
	for _, pattern := range []string{"testdata/bad/rules-*.yaml", "testdata/bad/settings-*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			schema := rulesSchema
			if strings.Contains(file, "settings-") {
				schema = settingsSchema
			}
			bad++
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			valid(t, schema, file, slices.ContainsFunc(beyondSchema, func(pattern string) bool {
				match, _ := filepath.Match(pattern, name)
				return match
			}))
		}
	}
	if good < 7 || bad < 60 {
		t.Errorf("only %d good and %d bad files", good, bad)
	}
}

// TestRulesInDocs: what the page of the rule language shows loads and is valid.
func TestRulesInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(examples) < 10 {
		t.Errorf("only %d examples were found", len(examples))
	}
	for _, e := range examples {
		s := Default()
		s.Rules.Path = write(t, "rules.yaml", string(e[1]))
		if _, err := Load(s); err != nil {
			t.Errorf("%s\n%s", e[1], err)
		}
		valid(t, rulesSchema, s.Rules.Path, true)
	}
}

// beyondSchema are patterns of bad files whose mistake no schema can see, or not without
// saying something that is hard to understand.
var beyondSchema = []string{
	// One value beside another.
	"rules-by-tier-default-beside-limit", "rules-duplicate-address", "rules-duplicate-descriptor", "rules-duplicate-space",
	"rules-duplicate-domain", "rules-limits-same-window",
	"rules-modes-that-contradict", "rules-replaces-cycle", "rules-replaces-itself", "rules-replaces-long-cycle",
	"rules-requests-per-unit-alone", "rules-share-threshold-without-wildcard", "rules-unlimited-false",
	"settings-same-address", "settings-secret-twice", "settings-styles-exclude", "settings-two-documents",
	// What another file or another setting says.
	"rules-tier-missing", "rules-tier-unknown", "rules-wildcard-in-api-key", "settings-secret-file-missing", "settings-secret-file-short",
	"settings-redis-credentials-twice", "settings-redis-password-file", "settings-redis-single-but", "settings-redis-tls", "settings-redis-user-alone", "settings-grpc-tls-*",
	"settings-secret-previous-*", "settings-tiers-*",
	// What is gone once YAML is read.
	"rules-empty", "rules-requests-octal", "rules-tag", "rules-metadata-deep",
	// What stands inside a text, and how large a whole is.
	"settings-authz-*", "settings-hosts",
	"rules-control-characters", "rules-metadata-long-text", "settings-grpc-address", "settings-http-address", "settings-no-grpc-address",
	"settings-ranges", "settings-redis-cluster-db", "settings-redis-url-db", "settings-redis-url-host", "settings-redis-url-hosts",
	"settings-redis-url-master", "settings-redis-url-master-db", "settings-redis-url-option", "settings-redis-url-option-fixed",
	"settings-redis-url-option-unknown", "settings-redis-url-password", "settings-redis-url-scheme", "settings-redis-url-socket",
	"settings-redis-url-twice", "settings-redis-url-user", "settings-secret-short", "settings-socket-mode", "settings-socket-mode-large",
}

var compiled sync.Map // file → *jsonschema.Schema

// valid checks every document of a YAML file against a schema.
func valid(t *testing.T, schemaFile, file string, want bool) {
	t.Helper()
	s, ok := compiled.Load(schemaFile)
	if !ok {
		schema, err := jsonschema.NewCompiler().Compile(schemaFile)
		if err != nil {
			t.Fatal(err)
		}
		s, _ = compiled.LoadOrStore(schemaFile, schema)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	err = check(s.(*jsonschema.Schema), data)
	if (err == nil) != want {
		t.Errorf("%s against %s: got %v, want valid: %v", file, schemaFile, err, want)
	}
}

func check(s *jsonschema.Schema, data []byte) error {
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV4Defaults())
	if err != nil {
		return err
	}
	for documents := 0; ; documents++ {
		var doc any
		switch err := loader.Load(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if doc == nil && documents > 0 {
			continue // behind the last "---"
		}
		asJSON, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			return err
		}
		if err := s.Validate(instance); err != nil {
			return err
		}
	}
}
