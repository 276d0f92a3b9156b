package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/test/tree"
)

// TestMetadataKeys compares [dynamic.Keys] with the keys that the code writes.
func TestMetadataKeys(t *testing.T) {
	inside := []string{"entries", "key", "value", "requests_per_unit", "unit"} // of a value that is an object
	entry := regexp.MustCompile(`wire\.Append[A-Za-z]*Entry\(b, "(\w+)"`)
	var listed []string
	sent := []string{limits.Limit{Name: "NAME"}.Key()} // whose code has no constant key
	for _, k := range dynamic.Keys {
		listed = append(listed, k.Name)
	}
	for _, file := range []string{"answer/dynamic/dynamic.go", "extauthz/answer.go", "ratelimit/metadata.go"} {
		text := tree.Text(t, "../../internal/edge/"+file)
		for _, m := range entry.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(inside, m[1]) {
				sent = append(sent, m[1])
			}
			if !slices.Contains(inside, m[1]) && !slices.Contains(listed, m[1]) {
				t.Errorf("%s writes the key %s, which dynamic.Keys does not list", file, m[1])
			}
		}
	}
	for _, name := range listed {
		if !slices.Contains(sent, name) {
			t.Errorf("dynamic.Keys lists %s, which no code writes", name)
		}
	}
}
