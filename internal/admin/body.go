package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/tier"
)

// strictJSON decodes one JSON object. It refuses names that are unknown, doubled, or in another
// case, and texts after the object. Errors repeat no value of the text, which may be an API key.
func strictJSON(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	if json.Valid(data) {
		if err := checkNames(data, reflect.TypeOf(v)); err != nil {
			return err
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	err := d.Decode(v)
	var wrongType *json.UnmarshalTypeError
	var refused *badBodyError
	switch {
	case err == nil:
		if _, err = d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("something follows the JSON object")
		}
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return fmt.Errorf("%s is not of the right type: expected %s", wrongType.Field, jsonType(wrongType.Type.Kind().String()))
	default:
		return errors.New("is not a JSON object of the right form")
	}
}

// checkNames returns an error if an object in valid JSON has a name twice, or one that its type
// does not have. encoding/json takes a name in any case, and the last of two equal ones. A type that
// decodes itself also checks itself. What has the wrong type is left to the decoder.
func checkNames(data []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	first := bytes.TrimLeft(data, " \t\r\n")[0]
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil
	case t.Kind() == reflect.Slice && first == '[':
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return err
		}
		for _, item := range items {
			if err := checkNames(item, t.Elem()); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && first == '{':
		fields := make(map[string]reflect.Type)
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
				fields[name] = f.Type
			}
		}
		return tier.ReadObject(data, func(name string, value json.RawMessage) error {
			field, ok := fields[name]
			if !ok {
				return fmt.Errorf("unknown field %s", repeated(name))
			}
			return checkNames(value, field)
		})
	}
	return nil
}

func jsonType(kind string) string {
	switch {
	case strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "int"):
		return "a whole number that is not negative"
	case kind == "string":
		return "a string"
	default:
		return "another type"
	}
}

// A badBodyError is a mistake in a body that its type finds.
type badBodyError struct{ text string }

func (e *badBodyError) Error() string { return e.text }
