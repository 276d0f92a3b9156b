package daemon

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
)

const (
	// containerPart is the percentage of the container's memory that the Go runtime keeps to.
	containerPart = 90
	// baseMemory is for everything but logs and records of subjects, unless rules and tiers
	// need more.
	baseMemory = 64 << 20
	// recordMemory is what a cached record of a subject takes, with garbage.
	recordMemory = 500
)

// limitMemory sets the soft memory limit of the Go runtime, unless GOMEMLIMIT is set. So the
// collector runs often enough before the process takes more than that. system is the root
// of the file system.
func limitMemory(s settings.Settings, system fs.FS, log *zap.Logger) {
	if text, ok := os.LookupEnv("GOMEMLIMIT"); ok && text != "" {
		log.Info("memory limit", zap.String("GOMEMLIMIT", text), zap.String("from", "environment"))
		return
	}
	limit, from := containerMemory(system)/100*containerPart, "container"
	if limit == 0 {
		limit, from = boundMemory(s, heapInUse()), "store.memory.max_bytes"
	}
	if limit == 0 {
		return
	}
	debug.SetMemoryLimit(limit)
	log.Info("memory limit", zap.Int64("bytes", limit), zap.String("from", from))
}

// boundMemory returns what the settings allow the process to take, or 0 if nothing bounds the
// memory store. started is the heap after the start, with rules and tiers, which a reload
// has twice.
func boundMemory(s settings.Settings, started int64) int64 {
	most := s.Store.Memory.Bound()
	if s.Store.Type != settings.StoreMemory || most <= 0 || most > math.MaxInt64/4 {
		return 0
	}
	limit := 2*most + max(baseMemory, 3*started)
	if s.Tiers.Asks() {
		limit += recordMemory * (knownKeys + unknownKeys)
	}
	return limit
}

// heapInUse returns the bytes of live objects and of those not yet collected.
func heapInUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(min(sample[0].Value.Uint64(), math.MaxInt64/8))
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
