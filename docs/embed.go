// Package docs holds the pages of this folder, so that the admin port serves those of its version.
package docs

import "embed"

// Pages are the pages for users, by their names: operate.md, reference/metrics.md.
//
//go:embed *.md reference/*.md
var Pages embed.FS
