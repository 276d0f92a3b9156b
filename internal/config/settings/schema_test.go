package settings

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/test/configtest"
)

// settingsSchema is the schema of settings files, made from the types.
const settingsSchema = "../../../docs/settings.schema.json"

// TestSettingsSchema compares the schema in docs with that of the types.
func TestSettingsSchema(t *testing.T) {
	configtest.CompareSchema(t, settingsSchema, makeSettingsSchema())
}

// TestSettingsAgainstSchema: the schema accepts the files that load, and refuses most of the
// others.
func TestSettingsAgainstSchema(t *testing.T) {
	configtest.FilesAgainstSchema(t, settingsSchema, []string{"testdata/good/settings-*.yaml", "settings.full.yaml"}, "testdata/bad/settings-*.yaml", []string{
		// One value beside another.
		"settings-same-address", "settings-scopes-memory", "settings-scopes-default", "settings-secret-twice", "settings-styles-exclude", "settings-two-documents",
		// A value that another file or another setting excludes.
		"settings-secret-file-missing", "settings-secret-file-short",
		"settings-redis-credentials-twice", "settings-redis-password-file", "settings-redis-single-but", "settings-redis-tls", "settings-redis-user-alone", "settings-grpc-tls-*", "settings-tls-*", "settings-rules-*", "settings-xds*",
		"settings-secret-previous-*", "settings-tiers-*", "settings-compare*", "settings-events*", "settings-reference-tags",
		// The content of a text, and the size of a value.
		"settings-authz-*", "settings-hosts", "settings-headers-reference*", "settings-reference-*", "settings-unhealthy", "settings-admin-*",
		"settings-grpc-address", "settings-http-address", "settings-no-grpc-address",
		"settings-ranges", "settings-redis-cluster-db", "settings-redis-url-db", "settings-redis-url-host", "settings-redis-url-hosts",
		"settings-redis-url-master", "settings-redis-url-master-db", "settings-redis-url-option", "settings-redis-url-option-fixed",
		"settings-redis-url-option-unknown", "settings-redis-url-password", "settings-redis-url-scheme", "settings-redis-url-socket",
		"settings-redis-url-twice", "settings-redis-url-user", "settings-secret-short", "settings-socket-mode", "settings-socket-mode-large",
	})
}

func loadSettingsFile(_ *testing.T, file string) error {
	_, _, err := Load(file, nil)
	return err
}

// TestBadSettings compares the problems of every file of testdata/bad with those that are
// wanted.
func TestBadSettings(t *testing.T) { configtest.BadFiles(t, 70, loadSettingsFile) }

// TestGoodSettings loads every file of testdata/good.
func TestGoodSettings(t *testing.T) { configtest.GoodFiles(t, loadSettingsFile) }

func makeSettingsSchema() configtest.Object {
	s := configtest.Schemas{Definitions: configtest.Object{}}
	enums := map[string][]string{"store.on_error": StoreErrors, "tiers.postgres.tls.mode": {"", TLSDisable, TLSRequire, TLSVerifyFull}}
	var section func(v reflect.Value, prefix string) configtest.Object
	section = func(v reflect.Value, prefix string) configtest.Object {
		properties := configtest.Object{}
		for _, k := range strict.KeysOf(v.Type()) {
			f, value, path := k.Field, v.FieldByIndex(k.Field.Index), prefix+k.Name
			if f.Type == reflect.TypeFor[Scopes]() {
				one := newScope("name")
				properties[k.Name] = configtest.Object{
					"type": []any{"object", "null"}, "description": f.Tag.Get("doc"), "propertyNames": configtest.Object{"pattern": scopeName.String()},
					"additionalProperties": section(reflect.ValueOf(&one.ScopeStore).Elem(), "store.scopes.name."),
				}
				continue
			}
			if isSection(f.Type) {
				properties[k.Name] = section(value, path+".")
				continue
			}
			schema := configtest.Object{"description": f.Tag.Get("doc"), "default": value.Interface()}
			for k, of := range s.Of(f.Type) {
				schema[k] = of
			}
			switch list := value.Interface().(type) {
			case Secret, time.Duration, FileMode:
				schema["default"] = textOf(value)
			case []string:
				if list == nil {
					schema["default"] = []string{}
				}
			}
			enum := enums[path]
			if oneOf := f.Tag.Get("oneof"); oneOf != "" {
				enum = strings.Fields(oneOf)
			}
			if enum != nil {
				delete(schema, "type")
				schema["enum"] = enum
			}
			properties[k.Name] = schema
		}
		return configtest.Object{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
	}
	d := Default()
	root := section(reflect.ValueOf(&d).Elem(), "")
	root["$schema"], root["title"] = configtest.Draft, "Settings of Slidegate"
	return root
}
