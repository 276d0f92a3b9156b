package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/docs"
)

// These are set when the binary is linked. Empty: the go command's own record is used, which a
// build outside a Git checkout does not have.
var (
	version string // without v: 0.1.0
	commit  string
	date    string // of the commit, RFC 3339 in UTC
)

// unknown is what a build cannot say about itself.
const unknown = "unknown"

// A build says where a binary comes from.
type build struct {
	Version string // semantic, without v, or "dev"
	Commit  string // ends in -dirty if files differed from it
	Date    string // of the commit, so that equal sources give equal binaries
}

// this is the build of this binary.
var this = buildOf(debug.ReadBuildInfo())

// buildOf returns what was linked, and for the rest what the go command recorded.
func buildOf(info *debug.BuildInfo, ok bool) build {
	var recorded build
	if ok {
		recorded = recordOf(info)
	}
	return build{
		Version: cmp.Or(strings.TrimPrefix(version, "v"), recorded.Version, "dev"),
		Commit:  cmp.Or(commit, recorded.Commit, unknown),
		Date:    cmp.Or(date, recorded.Date, unknown),
	}
}

// recordOf returns what the go command recorded. The version is that of "go install
// module@version"; in a checkout it would be a pseudo-version, which says no more than commit and
// date.
func recordOf(info *debug.BuildInfo) (b build) {
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if b.Commit == "" && info.Main.Version != "(devel)" {
		b.Version = strings.TrimPrefix(info.Main.Version, "v")
	}
	if b.Commit != "" && dirty {
		b.Commit += "-dirty"
	}
	return b
}

// docsPage returns the address of a page of docs, for the version of this binary.
func docsPage(name string) string { return docs.URL(this.Version, name) }

func versionOf() *cobra.Command {
	return leaf("version", "Print the version, the commit and its date.", func() error {
		fmt.Fprintf(&stdout, "slidegate %s\ncommit %s\ndate %s\nbuilt with %s for %s/%s\n",
			this.Version, this.Commit, this.Date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	})
}
