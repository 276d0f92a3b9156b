package guides

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// TestFailuresOfTheDocs looks for a section of docs/operate.md for each word that /healthcheck and
// the log have for a failure of Redis.
func TestFailuresOfTheDocs(t *testing.T) {
	_, failures, ok := strings.Cut(tree.Read(t, "docs/operate.md"), "\n### Failures\n")
	failures, _, end := strings.Cut(failures, "\n## ")
	if !ok || !end {
		t.Fatal("docs/operate.md has no section Failures")
	}
	got := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#### (.*)$`).FindAllStringSubmatch(failures, -1) {
		got[m[1]] = true
	}
	want := make(map[string]bool)
	for _, class := range failure.Classes {
		want[string(class)] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("docs/operate.md has the failures %v\nthe store has              %v", got, want)
	}
}

// TestRedisUserOfTheDocs runs the store as the Redis user of docs/operate.md. The user
// must have exactly the rights that the scripts need.
func TestRedisUserOfTheDocs(t *testing.T) {
	line := regexp.MustCompile(`(?m)^ACL SETUSER rls .*$`).FindString(tree.Read(t, "docs/operate.md"))
	if line == "" {
		t.Fatal("docs/operate.md has no line ACL SETUSER rls")
	}
	var acl []any
	granted := make(map[string]bool)
	for _, word := range strings.Fields(strings.ReplaceAll(line, ">PASSWORD", ">pw")) {
		acl = append(acl, word)
		if command, ok := strings.CutPrefix(word, "+"); ok {
			granted[command] = true
		}
	}
	needed := map[string]bool{"select": true, "eval": true, "evalsha": true, "script|load": true, "ping": true, "info": true, "scan": true, "zrem": true}
	takeBack := tree.Read(t, "pkg/window/redisstore/internal/script/takeback.lua")
	scripts, err := filepath.Glob("../../pkg/window/redisstore/internal/script/*.lua")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("got the scripts %q, error %v, want all", scripts, err)
	}
	scripts = append(scripts, "../../internal/operate/history/add.lua", "../../internal/operate/history/read.lua")
	for _, script := range scripts {
		text := tree.Read(t, strings.TrimPrefix(script, "../../"))
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(text, -1) {
			needed[strings.ToLower(m[1])] = true
		}
	}
	if fmt.Sprint(needed) != fmt.Sprint(granted) {
		t.Errorf("docs/operate.md grants %v\nthe store needs        %v", granted, needed)
	}

	address := servers.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: address})
	defer admin.Close()
	if err := admin.Do(t.Context(), acl...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Addr: address, Username: "rls", Password: "pw", MaxRetries: -1, DisableIdentity: true,
	})
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{Prefix: "slidegate:"})
	take := func(hits, cost uint64) window.Decision {
		t.Helper()
		var d [1]window.Decision
		c := window.Check{Key: "k", Limit: window.Limit{Hits: hits, Window: time.Hour}, Cost: cost}
		if _, err := store.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); err != nil {
			t.Fatalf("cost %d: %v", cost, err)
		}
		return d[0]
	}
	if err := store.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A first charge, further ones, a denial that frees more than the oldest entry.
	for i, want := range []bool{true, true, true, false} {
		if got := take(3, []uint64{1, 1, 1, 3}[i]).Allowed; got != want {
			t.Errorf("call %d: allowed %v, want %v", i+1, got, want)
		}
	}
	// A value that is not a log, and then a log that becomes a ring.
	if err := admin.Set(t.Context(), "slidegate:k:3600000000", "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if d := take(100, 1); d.Remaining != uint64(99-i) {
			t.Fatalf("call %d: %+v", i+1, d)
		}
	}
	// The log has no hits at the instant 0.
	asked := "\x00\x01" + "\x00\x00\xd6\x93\xa4\x00" + strings.Repeat("\x00", 7) + "\x00\x00\x00\x00\x01"
	if got, err := client.Eval(t.Context(), takeBack, []string{"slidegate:k:3600000000"}, asked).Text(); err != nil || len(got) != 12 || got[:5] != "\x00\x00\x00\x00\x00" {
		t.Errorf("takeback.lua: got %q, %v", got, err)
	}
	// A refund.
	back := window.Check{Key: "k", Limit: window.Limit{Hits: 100, Window: time.Hour}, Cost: 1, Mode: window.Refund}
	if _, err := store.Take(t.Context(), window.MayWait, []window.Check{back}, make([]window.Decision, 1)); err != nil {
		t.Error(err)
	}
	// What the pages and commands for operators need: a list, a reading, a reset.
	if ids, _, err := store.List(t.Context(), inspect.Match{}, ""); err != nil || len(ids) != 1 || ids[0] != back.Log() {
		t.Errorf("listed %v, %v, want %v", ids, err, back.Log())
	}
	if logs, err := store.Read(t.Context(), []window.LogID{back.Log()}); err != nil || logs[0].Contents.Used() != 29 {
		t.Errorf("read %+v, %v, want 29 hits", logs, err)
	}
	if logs, err := store.Remove(t.Context(), []window.LogID{back.Log()}); err != nil || len(logs) != 1 {
		t.Errorf("removed %+v, %v", logs, err)
	}
	// The heartbeat of the instance, and its end.
	counting, end := context.WithCancel(t.Context())
	if err := store.Count(counting, func(_, now int, err error) {
		if end(); now != 1 || err != nil {
			t.Errorf("counted %d instances, %v; want 1", now, err)
		}
	}); err != nil {
		t.Error(err)
	}
	if n, err := admin.Exists(t.Context(), "slidegate:instances").Result(); n != 0 || err != nil {
		t.Errorf("the entry of an instance that has ended is there: %d, %v", n, err)
	}
	// The history: a take at the end of the process, and an answer.
	counted := history.New(history.Options{
		Totals: func(t *metrics.Totals) { t.Rules = []metrics.RuleTotals{{Domain: "d", Rule: "r", Decisions: 1}} },
		Denied: func(time.Time) map[string]uint64 { return map[string]uint64{"sacme": 1} },
		Redis:  &history.Redis{Client: client, Prefix: "slidegate:"}, Now: time.Now, Log: zap.NewNop(),
	})
	if err := counted.Close(); err != nil {
		t.Error(err)
	}
	if all, err := counted.Read(t.Context(), history.Query{To: time.Now()}); err != nil || len(all.Rules) != 1 || len(all.Days) == 0 {
		t.Errorf("the history: %+v, %v", all, err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
