package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/test/servers"
)

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
