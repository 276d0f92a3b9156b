package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// draft is the draft of JSON Schema that editors know best, number 7.
const draft = "http://json-schema.org/draft-07/schema#"

// compareSchema compares a schema in docs with that of the types.
func compareSchema(t *testing.T, file string, schema object) {
	t.Helper()
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
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
		t.Errorf("%s is not what the types say: write it with go test ./internal/config/... -update", file)
	}
}

// filesAgainstSchema checks that files of the patterns good are valid, and that those of
// the pattern bad are not, but for the names that match beyond.
func filesAgainstSchema(t *testing.T, schemaFile string, good []string, bad string, beyond []string) {
	t.Helper()
	for _, pattern := range good {
		files := glob(t, pattern)
		if len(files) == 0 {
			t.Errorf("%s: no files", pattern)
		}
		for _, file := range files {
			valid(t, schemaFile, file, true)
		}
	}
	files := glob(t, bad)
	if len(files) < 60 {
		t.Errorf("only %d bad files", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		valid(t, schemaFile, file, slices.ContainsFunc(beyond, func(pattern string) bool {
			match, _ := filepath.Match(pattern, name)
			return match
		}))
	}
}

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

// schemas makes schemas of types.
type schemas struct {
	// fields are the schemas of fields whose type does not tell all, by the name of the
	// field or by that of its struct and its own.
	fields map[string]object
	// special returns the schema of a type that is read in a way of its own, or nil.
	special     func(s *schemas, t reflect.Type) object
	definitions object
}

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type) object {
	if s.special != nil {
		if schema := s.special(s, t); schema != nil {
			return schema
		}
	}
	switch t {
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

// struc returns the schema of a struct.
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
	if t.Name() == "rateLimit" {
		schema["type"] = []any{"object", "null"}
	}
	return schema
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
