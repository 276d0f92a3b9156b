package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/servers"
)

// TestForeignValue proves that a value in Redis which is not a log is counted and
// told of once, without its key.
func TestForeignValue(t *testing.T) {
	addr := servers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	if err := client.Set(t.Context(), "slidegate:secret:60000000", "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}

	s := settings.Default()
	s.Store.Type = settings.StoreRedis
	s.Store.Redis.KeyPrefix = "slidegate:"
	s.Store.Redis.URL = redisURL(t, "redis://"+addr)
	registry := prometheus.NewRegistry()
	core, logs := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	store, err := openStore(t.Context(), s, metrics.New(registry, metrics.Options{}), registry, log, log)
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	for i := range 2 {
		var d [1]window.Decision
		c := window.Check{Key: "secret", Limit: window.Limit{Hits: 5, Window: time.Minute}, Cost: 1}
		if _, err := store.decides.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil || d[0].Remaining != uint64(4-i) {
			t.Errorf("call %d: %+v, %v", i, d[0], err)
		}
	}
	want := `
# HELP slidegate_store_foreign_values_total Values in Redis under a key of ours that were not a log, and were thrown away.
# TYPE slidegate_store_foreign_values_total counter
slidegate_store_foreign_values_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "slidegate_store_foreign_values_total"); err != nil {
		t.Error(err)
	}
	all := logs.All()
	if len(all) != 1 || !strings.Contains(all[0].Message, "not a log") {
		t.Fatalf("log: %+v, want one line", all)
	}
	fields := all[0].ContextMap()
	if fields["prefix"] != "slidegate:" || fields["window"] != time.Minute || len(fields) != 2 {
		t.Errorf("fields: %v, want prefix and window and no more", fields)
	}
}

// TestRedisIsNotThereAtTheStart: the operator is warned, and told what
// to check, and that Redis has come.
func TestRedisIsNotThereAtTheStart(t *testing.T) {
	server := servers.StartRedis(t)
	server.Stop()
	s := testSettings(t)
	s.Store.Type = settings.StoreRedis
	s.Store.Redis.URL = redisURL(t, "redis://"+server.Addr())
	r := start(t, s)
	const want = "check that Redis runs, that store.redis.url is its address, and that user and password are right"
	if !strings.Contains(r.StoreMissing, want) || !strings.Contains(r.StoreMissing, "on_store_error decides") {
		t.Errorf("the greeting is told %q, want %q in it", r.StoreMissing, want)
	}
	warned := r.logs.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet(want).All()
	if len(warned) != 1 || !strings.Contains(warned[0].Message, "on_store_error decides") {
		t.Errorf("got the warnings %v, want one with %q", warned, want)
	}
	server.Start()
	r.waitLog("Redis answers now")
}
