package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
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

// warnings returns the number of log lines about a maxmemory-policy, and the warnings of
// /healthcheck.
func (o *opened) warnings() (logged int, page []string) {
	logged = o.logs.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet("maxmemory-policy").Len()
	p := &probes{tiers: func() string { return "" }, store: settings.StoreRedis, state: o.state}
	w := httptest.NewRecorder()
	p.healthcheck(w, httptest.NewRequest(http.MethodGet, "/healthcheck", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "warning: ") {
			page = append(page, strings.TrimSpace(line))
		}
	}
	return logged, page
}

// set sets the maxmemory-policy of servers and ends the connections of their clients.
func set(t *testing.T, policy string, nodes ...*servers.RedisServer) {
	t.Helper()
	for _, node := range nodes {
		if _, err := node.Do("CONFIG", "SET", "maxmemory-policy", policy); err != nil {
			t.Fatal(err)
		}
		if _, err := node.Do("CLIENT", "KILL", "USER", "default"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPolicy makes servers evict logs, in every topology. The store notices it at the next
// connection, also at a master that takes over. The log has one warning for each server, and
// /healthcheck shows it until the server stops.
func TestPolicy(t *testing.T) {
	single := servers.StartRedis(t)
	cluster := servers.StartCluster(t)
	sentinels := servers.StartSentinel(t, servers.SentinelOptions{})
	for _, c := range []struct {
		name    string
		url     string
		masters func() []*servers.RedisServer
	}{
		{"single", "redis://" + single.Addr(), func() []*servers.RedisServer { return []*servers.RedisServer{single} }},
		{"cluster", "redis-cluster://" + strings.Join(cluster.Addrs(), ","), cluster.Masters},
		{
			"sentinel", "redis-sentinel://" + strings.Join(sentinels.Sentinels(), ",") + "/" + sentinels.MasterName(),
			func() []*servers.RedisServer { return []*servers.RedisServer{sentinels.Master()} },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := open(t, redisSettings(t, c.url))
			all := len(c.masters())
			policies := func(want string) func() bool {
				return func() bool {
					o.decides("{k}") // makes connections again
					nodes := o.Stats().Nodes
					for _, n := range nodes {
						if n.Policy != want {
							return false
						}
					}
					return len(nodes) == all
				}
			}
			waitFor(t, "the policy", policies(redisstore.NoEviction))
			if logged, page := o.warnings(); logged != 0 || len(page) != 0 {
				t.Errorf("noeviction: %d warnings, %q", logged, page)
			}
			set(t, "volatile-ttl", c.masters()...)
			waitFor(t, "volatile-ttl", policies("volatile-ttl"))
			waitFor(t, "the warnings", func() bool { logged, page := o.warnings(); return logged == all && len(page) == all })
			set(t, "volatile-ttl", c.masters()...) // new connections, the same policy
			o.decides("{k}")
			set(t, redisstore.NoEviction, c.masters()...)
			waitFor(t, "noeviction again", policies(redisstore.NoEviction))
			if logged, page := o.warnings(); logged != all || len(page) != 0 {
				t.Errorf("noeviction again: %d warnings, %q; want %d and none", logged, page, all)
			}
		})
	}
	t.Run("sentinel, another master", func(t *testing.T) {
		o := open(t, redisSettings(t, "redis-sentinel://"+strings.Join(sentinels.Sentinels(), ",")+"/"+sentinels.MasterName()))
		waitFor(t, "the policy", func() bool { return o.Stats().Nodes[0].Policy == redisstore.NoEviction })
		master := sentinels.Master()
		set(t, "allkeys-lru", sentinels.Replicas()...)
		master.Stop()
		sentinels.WaitMaster(master.Addr())
		waitFor(t, "the policy of the new master", func() bool {
			o.decides("k")
			return o.Stats().Nodes[0].Policy == "allkeys-lru"
		})
	})
}

// TestUnknownPolicy has a user who may not read the policy. The log has one warning,
// which says what to grant, and the store decides.
func TestUnknownPolicy(t *testing.T) {
	server := servers.StartRedis(t, "--user", "rls", "on", ">pw", "~*", "&*", "+@all", "-info")
	o := open(t, redisSettings(t, "redis://rls:pw@"+server.Addr()))
	o.takes("k", 9)
	refused := func() int { return o.logs.FilterMessageSnippet("grant the user +info").Len() }
	waitFor(t, "the warning", func() bool { return refused() == 1 })
	if _, err := server.Do("CLIENT", "KILL", "USER", "rls"); err != nil {
		t.Fatal(err)
	}
	o.decides("k")
	if _, err := server.Do("ACL", "SETUSER", "rls", "+info"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("CLIENT", "KILL", "USER", "rls"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the policy", func() bool {
		o.decides("k")
		return o.Stats().Nodes[0].Policy == redisstore.NoEviction
	})
	if got := refused(); got != 1 {
		t.Errorf("%d warnings, want 1", got)
	}
	if _, page := o.warnings(); len(page) != 0 {
		t.Errorf("/healthcheck: %q", page)
	}
}
