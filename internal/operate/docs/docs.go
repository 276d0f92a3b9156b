package docs

import "regexp"

// tagged matches the versions that have a tag: 0.1.0 and 0.2.0-rc.1. built matches builds between tags,
// which name their commit: b89bc9d0, 0.1.0-5-gb89bc9d and 0.1.1-0.20261126152244-b89bc9d0e1f2.
var (
	tagged = regexp.MustCompile(`^\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)
	built  = regexp.MustCompile(`^(?:\d+\.\d+\.\d+-[0-9A-Za-z.-]*?[g.-])?([0-9a-f]{7,40})$`)
)

// URL returns the address of a page as it was in a version without v. The page is a file of the
// folder docs and can have an anchor: operate.md#traces. A build between tags gets that of its commit. Only a
// version that says neither gets that of main.
func URL(version, page string) string { return repository(version) + "/docs/" + page }

// repository is what the addresses of files in a version begin with, and tree what the addresses of folders begin with.
func repository(version string) string { return address("blob", version) }

func tree(version string) string { return address("tree", version) }

func address(kind, version string) string {
	at := "main"
	if tagged.MatchString(version) {
		at = "v" + version
	} else if m := built.FindStringSubmatch(version); m != nil {
		at = m[1]
	}
	return "https://github.com/slidegate/slidegate/" + kind + "/" + at
}
