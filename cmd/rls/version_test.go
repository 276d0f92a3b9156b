package main

import (
	"runtime/debug"
	"testing"
)

// TestBuild: what was linked counts first, then what the go command recorded.
func TestBuild(t *testing.T) {
	checkout := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122193000-0123456789ab+dirty"}}
	type linked struct{ version, commit, date string }
	for _, tt := range []struct {
		name   string
		linked linked
		info   *debug.BuildInfo
		want   build
	}{
		{"nothing is known", linked{}, nil, build{"dev", "unknown", "unknown"}},
		{"a test", linked{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, build{"dev", "unknown", "unknown"}},
		{"go build", linked{}, checkout, build{"0.0.0-20261122193000-0123456789ab+dirty", "unknown", "unknown"}},
		{"make build", linked{"0.1.0-3-g0123456", "0123456789abcdef-dirty", "2026-11-22T19:30:00Z"}, checkout, build{"0.1.0-3-g0123456", "0123456789abcdef-dirty", "2026-11-22T19:30:00Z"}},
		{"go install", linked{}, &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, build{"0.1.0", "unknown", "unknown"}},
		{"an image", linked{"v0.1.0", "fedcba", "2026-12-01T00:00:00Z"}, &debug.BuildInfo{}, build{"0.1.0", "fedcba", "2026-12-01T00:00:00Z"}},
	} {
		version, commit, date = tt.linked.version, tt.linked.commit, tt.linked.date
		if got := buildOf(tt.info, tt.info != nil); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	version, commit, date = "", "", ""
}
