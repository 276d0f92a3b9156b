package settings

import (
	"reflect"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/config/configtest"
)

// settingsSchema is the schema of settings files, made from the types.
const settingsSchema = "../../../docs/settings.schema.json"

// TestSchema compares the schema in docs with that of the types.
func TestSettingsSchema(t *testing.T) {
	configtest.CompareSchema(t, settingsSchema, makeSettingsSchema())
}

// TestSettingsAgainstSchema: files that load are valid, and so is what editors would say
// of most of the others.
func TestSettingsAgainstSchema(t *testing.T) {
	configtest.FilesAgainstSchema(t, settingsSchema, []string{"testdata/good/settings-*.yaml", "settings.full.yaml"}, "testdata/bad/settings-*.yaml", []string{
		// One value beside another.
		"settings-same-address", "settings-secret-twice", "settings-styles-exclude", "settings-two-documents",
		// What another file or another setting says.
		"settings-secret-file-missing", "settings-secret-file-short",
		"settings-redis-credentials-twice", "settings-redis-password-file", "settings-redis-single-but", "settings-redis-tls", "settings-redis-user-alone", "settings-grpc-tls-*",
		"settings-secret-previous-*", "settings-tiers-*",
		// What stands inside a text, and how large a whole is.
		"settings-authz-*", "settings-hosts",
		"settings-grpc-address", "settings-http-address", "settings-no-grpc-address",
		"settings-ranges", "settings-redis-cluster-db", "settings-redis-url-db", "settings-redis-url-host", "settings-redis-url-hosts",
		"settings-redis-url-master", "settings-redis-url-master-db", "settings-redis-url-option", "settings-redis-url-option-fixed",
		"settings-redis-url-option-unknown", "settings-redis-url-password", "settings-redis-url-scheme", "settings-redis-url-socket",
		"settings-redis-url-twice", "settings-redis-url-user", "settings-secret-short", "settings-socket-mode", "settings-socket-mode-large",
	})
}

func loadSettingsFile(_ *testing.T, file string) error {
	_, err := Load(file, nil)
	return err
}

// TestBadSettings compares the problems of every file of testdata/bad with those that are
// wanted.
func TestBadSettings(t *testing.T) { configtest.BadFiles(t, 90, loadSettingsFile) }

// TestGoodSettings loads every file of testdata/good.
func TestGoodSettings(t *testing.T) { configtest.GoodFiles(t, loadSettingsFile) }

func makeSettingsSchema() configtest.Object {
	s := configtest.Schemas{Definitions: configtest.Object{}}
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
	var section func(v reflect.Value, prefix string) configtest.Object
	section = func(v reflect.Value, prefix string) configtest.Object {
		properties := configtest.Object{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := f.Tag.Get("yaml")
			if isSection(f.Type) {
				properties[name] = section(v.Field(i), prefix+name+".")
				continue
			}
			schema := configtest.Object{"description": f.Tag.Get("doc"), "default": v.Field(i).Interface()}
			for k, of := range s.Of(f.Type) {
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
		return configtest.Object{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
	}
	d := Default()
	root := section(reflect.ValueOf(&d).Elem(), "")
	root["$schema"], root["title"] = configtest.Draft, "Settings of Slidegate"
	return root
}
