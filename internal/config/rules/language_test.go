package rules

import (
	"reflect"
	"slices"
	"testing"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// TestKeysOfTheReferenceAreKnownEverywhere: such files load there.
func TestKeysOfTheReferenceAreKnownEverywhere(t *testing.T) {
	for _, level := range []strict.KeyAdviser{new(rulesDoc), new(descriptorEntry), new(rateLimit), new(replacement)} {
		known := strict.KeysOf(reflect.TypeOf(level).Elem())
		for _, key := range PortableKeys {
			if slices.ContainsFunc(known, func(k strict.Key) bool { return k.Name == key }) {
				continue
			}
			if got := level.AdviseKey(key); !got.Ignored || got.Message == "" {
				t.Errorf("%T: %s: got %+v, want a warning", level, key, got)
			}
		}
	}
	if got, want := len(PortableKeys), 16; got != want {
		t.Errorf("keys of the reference: got %d, want %d", got, want)
	}
}
