package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
)

// TestCorruptValue has a value in Redis that is not a log. Metrics and log report it once,
// without its key.
func TestCorruptValue(t *testing.T) {
	addr := servers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	if err := client.Set(t.Context(), "slidegate:secret:3600000000", "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}

	o := open(t, redisSettings(t, "redis://"+addr))
	o.takes("secret", 9)
	o.takes("secret", 8)
	want := `
# HELP slidegate_store_foreign_values_total Unreadable values under Slidegate's keys in Redis. Each was deleted, and its limit started from zero. Another program writes under store.redis.key_prefix.
# TYPE slidegate_store_foreign_values_total counter
slidegate_store_foreign_values_total 1
`
	if err := testutil.GatherAndCompare(o.registry, strings.NewReader(want), "slidegate_store_foreign_values_total"); err != nil {
		t.Error(err)
	}
	all := o.logs.FilterLevelExact(zapcore.ErrorLevel).All()
	if len(all) != 1 || !strings.Contains(all[0].Message, "not a log") {
		t.Fatalf("log: %+v, want one line", all)
	}
	fields := all[0].ContextMap()
	if fields["prefix"] != "slidegate:" || fields["window"] != time.Hour || len(fields) != 2 {
		t.Errorf("fields: %v, want prefix and window and no more", fields)
	}
}

// TestStoreDownIsTheState proves that slidegate_store_down describes the servers that the
// store has now. A server that refused to write and then left the cluster does not count.
func TestStoreDownIsTheState(t *testing.T) {
	o := open(t, redisSettings(t, "redis://127.0.0.1:1")) // no server listens there
	want := func(want string) {
		t.Helper()
		page := `
# HELP slidegate_store_down 1 while a Redis server fails and is not asked, or refuses to write.
# TYPE slidegate_store_down gauge
slidegate_store_down ` + want + "\n"
		if err := testutil.GatherAndCompare(o.registry, strings.NewReader(page), "slidegate_store_down"); err != nil {
			t.Error(err)
		}
	}
	o.changed(redisstore.Change{Node: "127.0.0.1:2", Refuses: true, Class: failure.Memory})
	want("0")
	for range redisstore.DefaultFailures {
		_ = o.refused("a")
	}
	want("1")
	for _, class := range []string{"oom", "connect"} {
		page := "https://github.com/slidegate/slidegate/blob/v0.1.0/docs/operate.md#" + class + " says how"
		if o.logs.FilterMessageSnippet(page).FilterField(zap.String("class", class)).Len() != 1 {
			t.Errorf("no log line of a failure of the class %s names its section: %+v", class, o.logs.All())
		}
	}
}
