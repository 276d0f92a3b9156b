package configtest

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Answers makes schemas of types that are written as JSON.
type Answers struct {
	Refs  string // what a reference to a named schema begins with
	Named Object // the schemas of structs, by their names
}

// Of returns the schema of a type. That of a struct is a reference to Named.
func (s *Answers) Of(t reflect.Type) Object {
	if t == reflect.TypeFor[time.Time]() {
		return Object{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return Object{"anyOf": []any{s.Of(t.Elem()), Object{"type": "null"}}}
	case reflect.Slice:
		return Object{"type": "array", "items": s.Of(t.Elem())}
	case reflect.Map:
		return Object{"type": "object", "additionalProperties": s.Of(t.Elem())}
	case reflect.String:
		return Object{"type": "string"}
	case reflect.Bool:
		return Object{"type": "boolean"}
	case reflect.Float64:
		return Object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return Object{"type": "integer"}
	case reflect.Uint64:
		return Object{"type": "integer", "minimum": 0}
	case reflect.Struct:
		if s.Named[t.Name()] == nil {
			s.Named[t.Name()] = Object{}
			s.Named[t.Name()] = s.Struct(t)
		}
		return Object{"$ref": s.Refs + t.Name()}
	default:
		panic("no schema for " + t.String())
	}
}

// Struct returns the schema of a struct itself.
func (s *Answers) Struct(t reflect.Type) Object {
	properties, required := Object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Anonymous || !f.IsExported() {
			continue
		}
		if name == "" {
			panic(t.Name() + "." + f.Name + " has no JSON name")
		}
		properties[name] = s.Of(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			described := Object{"description": doc}
			maps.Copy(described, properties[name].(Object)) //nolint:forcetypeassert // as [Answers.Of] made it
			properties[name] = described
		}
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	o := Object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}
