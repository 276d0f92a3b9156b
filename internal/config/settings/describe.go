package settings

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// A Setting describes one setting for docs/reference/settings.md.
type Setting struct {
	Path    string // store.redis.url
	Env     string // SLIDEGATE_STORE_REDIS_URL
	Default string // as text; lists separated by commas
	Doc     string
}

// Describe returns every setting in the order of the fields, with the values of s as the defaults.
func Describe(s Settings) []Setting { return describe(reflect.ValueOf(s), "") }

func describe(section reflect.Value, prefix string) (all []Setting) {
	for _, k := range strict.KeysOf(section.Type()) {
		path, v := prefix+k.Name, section.FieldByIndex(k.Field.Index)
		if isSection(v.Type()) {
			all = append(all, describe(v, path+".")...)
			continue
		}
		env := envName(path)
		if _, ok := v.Interface().(Scopes); ok {
			env += "_NAME_…" // sections by name
		}
		all = append(all, Setting{Path: path, Env: env, Default: textOf(v), Doc: k.Field.Tag.Get("doc")})
	}
	return all
}

// textOf returns a setting as text: as the environment has it.
func textOf(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(items, ",")
}
