package configtest

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

	"github.com/slidegate/slidegate/internal/config/strict"
)

// Draft is the draft of JSON Schema that editors know best, number 7.
const Draft = "http://json-schema.org/draft-07/schema#"

// CompareSchema compares a schema in docs with that of the types.
func CompareSchema(t *testing.T, file string, schema Object) {
	t.Helper()
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if *Update {
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

// Described checks that each key of a schema has a description: editors show it, and the reference is
// made of it.
func Described(t *testing.T, schema Object) {
	t.Helper()
	for _, key := range undescribed("", schema) {
		t.Errorf("the field of %s has no tag doc", key)
	}
}

// undescribed returns the keys without a description in a part of a schema.
func undescribed(path string, part any) (keys []string) {
	switch part := part.(type) {
	case []any:
		for _, v := range part {
			keys = append(keys, undescribed(path, v)...)
		}
	case Object:
		for name, v := range part {
			if name != "properties" {
				keys = append(keys, undescribed(path+"/"+name, v)...)
				continue
			}
			for key, property := range v.(Object) { //nolint:forcetypeassert // a map of schemas, by JSON Schema
				if p := property.(Object); p["description"] == nil { //nolint:forcetypeassert // a schema
					keys = append(keys, path+"/"+key)
				}
				keys = append(keys, undescribed(path+"/"+key, property)...)
			}
		}
	}
	return keys
}

// FilesAgainstSchema checks that the files of the patterns good are valid, and that the files
// of the pattern bad are not. Bad files whose names match a pattern of beyond are valid too.
func FilesAgainstSchema(t *testing.T, schemaFile string, good []string, bad string, beyond []string) {
	t.Helper()
	for _, pattern := range good {
		files := glob(t, pattern)
		if len(files) == 0 {
			t.Errorf("%s: no files", pattern)
		}
		for _, file := range files {
			Valid(t, schemaFile, file, true)
		}
	}
	files := glob(t, bad)
	if len(files) < 60 {
		t.Errorf("only %d bad files", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		Valid(t, schemaFile, file, slices.ContainsFunc(beyond, func(pattern string) bool {
			match, _ := filepath.Match(pattern, name)
			return match
		}))
	}
}

// An Object is an object of JSON.
type Object = map[string]any

// Text is what counts as a text: YAML takes some for numbers and truth values.
var Text = []any{"string", "number", "boolean"}

// Duration is a time as [ParseDuration] reads it.
var Duration = Object{"anyOf": []any{
	Object{"type": "string", "pattern": `^[+-]?(0|([0-9.]+(ns|us|µs|ms|s|m|h|d|w))+)$`},
	Object{"const": 0},
}}

// Words for true and false that YAML 1.1 has besides these.
var Words = Object{"enum": []any{"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF", "y", "Y", "n", "N"}}

// Schemas makes schemas of types.
type Schemas struct {
	// fields are the schemas of fields whose type does not say all, by the name of the
	// field or by that of its struct and the field.
	Fields map[string]Object
	// special returns the schema of a type that is read in its special way, or nil.
	Special     func(s *Schemas, t reflect.Type) Object
	Definitions Object
}

// Of returns the schema of a type.
func (s *Schemas) Of(t reflect.Type) Object {
	if s.Special != nil {
		if schema := s.Special(s, t); schema != nil {
			return schema
		}
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return Duration
	}
	if strict.IsText(t) {
		return Object{"type": Text}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.Of(t.Elem())
	case reflect.String:
		return Object{"type": Text}
	case reflect.Uint64, reflect.Int:
		return Object{"type": "integer", "minimum": 0}
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.String || strict.IsText(e) {
			return Object{"anyOf": []any{Object{"type": []any{"array", "null"}, "items": Object{"type": Text}}, Object{"type": Text}}}
		}
		if t.Elem().Kind() == reflect.Struct && strings.HasPrefix(t.Elem().Name(), "Entry[") {
			value, _ := t.Elem().FieldByName("Value")
			return Object{"type": []any{"object", "null"}, "additionalProperties": s.Of(value.Type)}
		}
		return Object{"type": []any{"array", "null"}, "items": s.Of(t.Elem())}
	}
	if strings.HasPrefix(t.Name(), "Field[") {
		value, _ := t.FieldByName("Value")
		return s.Of(value.Type)
	}
	if s.Definitions[t.Name()] == nil {
		s.Definitions[t.Name()] = Object{} // it may hold itself
		s.Definitions[t.Name()] = s.Struc(t)
	}
	return Object{"$ref": "#/definitions/" + t.Name()}
}

// Struc returns the schema of a struct.
func (s *Schemas) Struc(t reflect.Type) Object {
	properties, required := Object{}, []any{}
	for _, f := range strict.KeysOf(t) {
		name := f.Name
		schema := s.Of(f.Field.Type)
		if _, isRef := schema["$ref"]; isRef {
			schema = Object{"allOf": []any{schema}}
		}
		whole := Object{}
		for k, v := range schema {
			whole[k] = v
		}
		override, known := s.Fields[t.Name()+"."+name]
		if !known {
			override = s.Fields[name]
		}
		if override["type"] != nil || override["anyOf"] != nil || override["enum"] != nil {
			whole = Object{}
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
	schema := Object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if _, limits := properties["requests_per_unit"]; limits {
		schema["dependencies"] = Object{
			"unit": []any{"requests_per_unit"}, "window": []any{"requests"}, "requests": []any{"window"},
			"rate": []any{"burst"}, "burst": []any{"rate"},
		}
		schema["minProperties"] = 1
		var never []any
		for _, both := range [][]any{
			{"unit", "window"},
			{"limits", "unit"},
			{"limits", "window"},
			{"limits", "rate"},
			{"limits", "max"},
			{"rate", "unit"},
			{"rate", "window"},
			{"rate", "max"},
			{"max", "unit"},
			{"max", "window"},
		} {
			never = append(never, Object{"not": Object{"type": "object", "required": both}})
		}
		schema["allOf"] = never
	}
	if t.Name() == "rateLimit" {
		schema["type"] = []any{"object", "null"}
	}
	return schema
}

var compiled sync.Map // file → *jsonschema.Schema

// Valid checks every document of a YAML file against a schema.
func Valid(t *testing.T, schemaFile, file string, want bool) {
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
