package daemon

import (
	"runtime/debug"
	"testing"
	"testing/fstest"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
)

func TestContainerMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"not Linux":              {nil, 0},
		"version 2":              {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		"version 2, no limit":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, a unit":      {map[string]string{"proc/self/cgroup": "0::/system.slice/rls.service\n", "sys/fs/cgroup/system.slice/rls.service/memory.max": "1000000\n", "sys/fs/cgroup/system.slice/memory.max": "max\n"}, 1000000},
		"version 2, group above": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "3000000\n", "sys/fs/cgroup/a/memory.max": "2000000\n"}, 2000000},
		"version 2, not seen":    {map[string]string{"proc/self/cgroup": "0::/../docker/x\n", "sys/fs/cgroup/memory.max": "5000000\n"}, 5000000},
		"version 1":              {map[string]string{"proc/self/cgroup": "9:name=systemd:/x\n4:cpu,memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000000\n"}, 7000000},
		"version 1, no limit":    {map[string]string{"proc/self/cgroup": "4:memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"garbage":                {map[string]string{"proc/self/cgroup": "a\n:\n::\n4:memory\n", "sys/fs/cgroup/memory.max": "-5\n"}, 0},
	} {
		system := make(fstest.MapFS)
		for file, text := range tt.files {
			system[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerMemory(system); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	container := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("4000000000\n")},
	}
	s := settings.Default()
	s.Store.Memory.MaxBytes = 1 << 30
	limit := func(environment string, system fstest.MapFS, store string) (int64, string) {
		t.Setenv("GOMEMLIMIT", environment)
		s.Store.Type = store
		debug.SetMemoryLimit(before)
		core, logs := observer.New(zapcore.InfoLevel)
		limitMemory(s, system, zap.New(core))
		from := ""
		if logs.Len() > 0 {
			from = logs.All()[0].ContextMap()["from"].(string)
		}
		return debug.SetMemoryLimit(-1), from
	}
	if n, from := limit("", container, settings.StoreMemory); n != 3_600_000_000 || from != "container" {
		t.Errorf("a container: %d from %q", n, from)
	}
	if n, from := limit("", container, settings.StoreRedis); n != 3_600_000_000 || from != "container" {
		t.Errorf("a container, Redis: %d from %q", n, from)
	}
	if n, from := limit("", nil, settings.StoreMemory); n < 2<<30+baseMemory || n > 4<<30 || from != "store.memory.max_bytes" {
		t.Errorf("the bound: %d from %q", n, from)
	}
	if n, from := limit("", nil, settings.StoreRedis); n != before || from != "" {
		t.Errorf("nothing bounds it: %d from %q", n, from)
	}
	if n, from := limit("off", container, settings.StoreMemory); n != before || from != "environment" {
		t.Errorf("GOMEMLIMIT: %d from %q", n, from)
	}
	s.Tiers.Source = settings.TiersInPostgres
	if n := boundMemory(s, 0); n != baseMemory+2<<30+recordMemory*1_100_000 {
		t.Errorf("with a customer source: %d", n)
	}
	s.Store.Memory.MaxBytes = 0
	if n := boundMemory(s, 0); n != 0 {
		t.Errorf("no bound: %d", n)
	}
}
