package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/operate/docs"
)

// These are set when the binary is linked.
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

// buildOf returns what was linked. A binary of "go install" or "go build" has only the version that
// the go command recorded, with date and commit if it was built in a checkout.
func buildOf(info *debug.BuildInfo, ok bool) build {
	recorded := ""
	if ok && info.Main.Version != "(devel)" {
		recorded = info.Main.Version
	}
	return build{strings.TrimPrefix(cmp.Or(version, recorded, "dev"), "v"), cmp.Or(commit, unknown), cmp.Or(date, unknown)}
}

// docsPage returns the address of a page of docs, for the version of this binary.
func docsPage(name string) string { return docs.URL(this.Version, name) }

func versionOf() *cobra.Command {
	return leaf("version", "Print the version, the commit and its date.", "", func() error {
		fmt.Fprintf(&stdout, "slidegate %s\ncommit %s\ndate %s\nbuilt with %s for %s/%s\n",
			this.Version, this.Commit, this.Date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	})
}
