package house

import (
	"os"
	"strings"
	"testing"
)

// TestReleaseImages: a release packs its own binaries into images. They must be those that the
// Dockerfile builds from the sources: the stages after the build are equal.
func TestReleaseImages(t *testing.T) {
	stages := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(string(text), "\nFROM gcr.io/distroless/static-debian12:nonroot AS base\n")
		if !found {
			t.Fatalf("%s has no stage named base", path)
		}
		return after
	}
	if release, source := stages("../../deploy/release/Dockerfile"), stages("../../Dockerfile"); release != source {
		t.Errorf("deploy/release/Dockerfile has from the stage base on:\n%s\nthe Dockerfile has:\n%s", release, source)
	}
}
