package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/servers"
)

// TestFullStoreSaysWhatToDo fills a memory store. The log names the rule that has filled it.
func TestFullStoreSaysWhatToDo(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	s, err := openMemory(t.Context(), settings.Memory{MaxBytes: 150}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	take := func(key string) error {
		checks := []window.Check{{Key: key, Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}}
		_, err := s.Take(t.Context(), window.MayWait, checks, make([]window.Decision, 1))
		return err
	}
	if err := take("{1}:edge|per_ip:1"); err != nil {
		t.Fatal(err)
	}
	if err = take("{2}:edge|per_ip:2"); !errors.Is(err, memstore.ErrFull) {
		t.Fatalf("got error %v, want %q", err, memstore.ErrFull)
	}
	storeFailed(zap.New(core))(err)
	lines := logs.FilterMessage("the store is full; raise store.memory.max_bytes").All()
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["error"]), "the rule edge|per_ip ") {
		t.Errorf("got %v, want a line that says what to do and names the rule", logs.All())
	}
}

// TestStartsThatFail starts with files that Run cannot use. Run names the setting and the file,
// and does not serve.
func TestStartsThatFail(t *testing.T) {
	a, dir := servers.NewAuthority(t), t.TempDir()
	_, cert, key := a.ServerFiles()
	write(t, key, "torn")
	missing := dir + "/missing"
	for want, change := range map[string]func(*settings.Settings){
		"store.memory.snapshot: " + dir + " is not a file":                               func(s *settings.Settings) { s.Store.Memory.Snapshot = dir },
		"store.memory.snapshot: the directory " + missing + " does not exist; create it": func(s *settings.Settings) { s.Store.Memory.Snapshot = missing + "/logs" },
		"grpc.address: cannot listen on unix://" + missing + "/s: the directory " + missing + " does not exist; create it": func(s *settings.Settings) {
			s.GRPC.Address = []settings.Address{settings.Address("unix://" + missing + "/s")}
		},
		"grpc.tls.cert_file: " + cert: func(s *settings.Settings) { secure(s, a) },
	} {
		s := testSettings(t)
		change(&s)
		err := Run(t.Context(), s, Options{Log: zap.NewNop(), Ready: func(Running) { t.Error("it serves") }})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
