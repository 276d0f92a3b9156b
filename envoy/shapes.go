// Package envoy has the configurations of Envoy that Slidegate ships. Package
// internal/offline/envoyconfig prints them with other addresses.
package envoy

import "embed"

// Files are the configurations. Each is complete, and is a shape of rls envoy-config.
//
//go:embed *.yaml
var Files embed.FS
