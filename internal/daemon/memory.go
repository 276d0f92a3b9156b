package daemon

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// containerPart is the percentage of the container's memory that the Go runtime keeps to.
const containerPart = 90

// limitMemory sets the soft memory limit of the Go runtime, unless GOMEMLIMIT is set. So the
// collector runs often enough before the process takes more than that. system is the root
// of the file system.
func limitMemory(system fs.FS, log *zap.Logger) {
	if text, ok := os.LookupEnv("GOMEMLIMIT"); ok && text != "" {
		log.Info("memory limit", zap.String("GOMEMLIMIT", text), zap.String("from", "environment"))
		return
	}
	if limit := containerMemory(system) / 100 * containerPart; limit > 0 {
		debug.SetMemoryLimit(limit)
		log.Info("memory limit", zap.Int64("bytes", limit), zap.String("from", "container"))
	}
}

// containerMemory returns the memory limit of the process's control group, or of the group
// above it with the smallest limit. Zero: there is none.
func containerMemory(system fs.FS) (limit int64) {
	groups, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return 0 // not Linux
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		root, file := "sys/fs/cgroup", "memory.max" // version 2
		switch {
		case controllers == "":
		case strings.Contains(","+controllers+",", ",memory,"):
			root, file = root+"/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			text, _ := fs.ReadFile(system, path.Join(root, group, file)) // a container may not see the groups above
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			// Version 1 has a number of about 2^63 for no limit, and version 2 a word.
			if err == nil && n > 0 && n < 1<<60 && (limit == 0 || n < limit) {
				limit = n
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}
