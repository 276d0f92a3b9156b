package config

import (
	"reflect"
	"slices"
	"testing"
)

// TestKeysOfTheReferenceAreKnownEverywhere: such files load there.
func TestKeysOfTheReferenceAreKnownEverywhere(t *testing.T) {
	for _, level := range []keyJudge{new(rulesDoc), new(descriptorEntry), new(rateLimit), new(replacement)} {
		known := KeysOf(reflect.TypeOf(level).Elem())
		for _, key := range ofReference {
			if slices.ContainsFunc(known, func(k Key) bool { return k.Name == key }) {
				continue
			}
			if got := level.judgeKey(key); !got.ignored || got.message == "" {
				t.Errorf("%T: %s: got %+v, want a warning", level, key, got)
			}
		}
	}
	if got, want := len(ofReference), 16; got != want {
		t.Errorf("keys of the reference: got %d, want %d", got, want)
	}
}
