package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// TestFullStoreSaysWhatToDo fills a memory store.
func TestFullStoreSaysWhatToDo(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	s, err := openMemory(settings.Memory{MaxKeys: 1}, prometheus.NewRegistry(), zap.NewNop(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	take := func(key string) error {
		checks := []window.Check{{Key: key, Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}}
		_, err := s.decides.Take(t.Context(), window.MayWait, checks, make([]window.Decision, 1))
		return err
	}
	if err := take("first"); err != nil {
		t.Fatal(err)
	}
	if err := take("second"); !errors.Is(err, memstore.ErrFull) {
		t.Fatalf("got error %v, want %q", err, memstore.ErrFull)
	}
	if got := logs.FilterMessage("the store is full; raise store.memory.max_keys or store.memory.max_bytes").Len(); got != 1 {
		t.Errorf("got %v, want a line that says what to do", logs.All())
	}
}

// TestSnapshotThatCannotBeWritten starts with a snapshot that names a directory.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	s := testSettings(t)
	s.Store.Memory.Snapshot = t.TempDir()
	want := "store.memory.snapshot: " + s.Store.Memory.Snapshot + " is not a file"
	if err := Run(t.Context(), s, Options{Log: zap.NewNop()}); err == nil || err.Error() != want {
		t.Errorf("Run = %v, want %q", err, want)
	}
}
