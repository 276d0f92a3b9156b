package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/redislog"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/test/servers"
)

// opened is a store in Redis that a test has opened, with its log and its metrics.
type opened struct {
	*redisScope // of the region
	store       *redisStore
	t           *testing.T
	settings    settings.Settings
	logs        *observer.ObservedLogs
	registry    *prometheus.Registry
}

// redisSettings returns settings with timeouts that end only a call that hangs.
func redisSettings(t testing.TB, url string) settings.Settings {
	s := settings.Default()
	s.Store.Type, s.Store.Timeout = settings.StoreRedis, 20*time.Second
	s.Store.Redis.URL = redisURL(t, url)
	return s
}

// redisTLS starts a Redis with TLS and returns the settings for it.
func redisTLS(t *testing.T) (*servers.RedisServer, settings.Settings) {
	t.Helper()
	server := servers.StartRedisTLS(t)
	s := redisSettings(t, "rediss://"+server.Addr())
	s.Store.Redis.TLS.CAFile, s.Store.Redis.TLS.CertFile, s.Store.Redis.TLS.KeyFile = server.TLSFiles()
	return server, s
}

// everyCallTries makes stores that open from now on ask their server however often it fails.
func everyCallTries(t *testing.T) {
	storeFailures = math.MaxInt32
	t.Cleanup(func() { storeFailures = 0 })
}

// open opens the store of the settings.
func open(t *testing.T, s settings.Settings) *opened {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	log := zap.New(core)
	registry := prometheus.NewRegistry()
	store, err := openRedis(t.Context(), s, metrics.New(registry, metrics.Options{}), "0.1.0", log, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &opened{redisScope: store.scopes[0], store: store, t: t, settings: s, logs: logs, registry: registry}
}

// charge charges a log of ten hits an hour and returns what remains.
func (o *opened) charge(ctx context.Context, key string, cost uint64) (remaining uint64, err error) {
	var d [1]window.Decision
	c := window.Check{Key: key, Limit: window.Limit{Hits: 10, Window: time.Hour}, Cost: cost}
	_, err = o.Take(ctx, window.MayWait, []window.Check{c}, d[:])
	return d[0].Remaining, err
}

// takes charges one hit and checks what remains.
func (o *opened) takes(key string, remaining uint64) {
	o.t.Helper()
	if got, err := o.charge(o.t.Context(), key, 1); err != nil || got != remaining {
		o.t.Errorf("%s: %d remain, %v; want %d", key, got, err, remaining)
	}
}

// refused charges one hit, and returns the error that it wants.
func (o *opened) refused(key string) error {
	o.t.Helper()
	_, err := o.charge(o.t.Context(), key, 1)
	if err == nil {
		o.t.Errorf("%s: decided, want an error", key)
	}
	return err
}

// decides waits until the store decides for a log.
func (o *opened) decides(key string) {
	o.t.Helper()
	waitFor(o.t, "a decision", func() bool {
		ctx, cancel := context.WithTimeout(o.t.Context(), time.Second)
		defer cancel()
		_, err := o.charge(ctx, key, 0)
		return err == nil
	})
}

// hides checks that no line of the log shows one of some secrets.
func (o *opened) hides(secrets ...string) {
	o.t.Helper()
	for _, l := range o.logs.All() {
		line := fmt.Sprint(l.Message, l.ContextMap())
		for _, secret := range secrets {
			if strings.Contains(line, secret) {
				o.t.Errorf("the log shows a secret: %s", line)
			}
		}
	}
}

// write replaces a file by a complete one, as tools that renew secrets do.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

func (o *opened) inspects(key string) {
	o.t.Helper()
	var out strings.Builder
	if err := redislog.Print(o.t.Context(), o.settings, settings.ScopeRegion, "slidegate:"+key+":3600000000", -1, &out); err != nil || !strings.Contains(out.String(), "a cost of 2 counts now") {
		o.t.Errorf("inspect: %v\n%s", err, out.String())
	}
}

func TestRedisSingle(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := servers.StartRedis(t, "--unixsocket", socket, "--user", "rls", "on", ">pw/@#:%", "~*", "+@all")
	tcp := open(t, redisSettings(t, "redis://rls:pw%2F%40%23%3A%25@"+server.Addr()+"/3"))
	tcp.takes("k", 9)
	unix := open(t, redisSettings(t, "unix://"+socket+"?db=3"))
	unix.takes("k", 8)
	unix.inspects("k")
	open(t, redisSettings(t, "unix://"+socket)).takes("k", 9) // another database
	if n := tcp.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestRedisCluster charges logs on all masters of a cluster, through a failover, and while a
// slot moves. The user has only the rights that docs/operate.md gives it.
func TestRedisCluster(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER (rls .*)$`).FindSubmatch(page)
	more := regexp.MustCompile("(?m)on a Cluster `(.*?)` too").FindSubmatch(page)
	if line == nil || more == nil {
		t.Fatal("docs/operate.md has no user for a cluster")
	}
	words := strings.Fields(strings.Replace(string(line[1])+" "+string(more[1]), ">PASSWORD", ">pw", 1))
	cluster := servers.StartCluster(t, append([]string{"--user"}, words...)...)
	o := open(t, redisSettings(t, "redis-cluster://rls:pw@"+strings.Join(cluster.Addrs()[:2], ",")))
	for i := range 20 {
		o.takes(fmt.Sprintf("{k%d}", i), 9)
	}
	if state := o.state(); !state.Reached || len(state.Nodes) != 3 {
		t.Errorf("the servers: %+v, want three that were reached", state)
	}
	if s := o.connections(); s < 3 {
		t.Errorf("pool: %+v, want a connection to each master", s)
	}

	// A replica takes over, and the old master redirects the client to it.
	name := "slidegate:{k0}:3600000000"
	master := cluster.MasterOf(name)
	replica := cluster.ReplicaOf(master)
	cluster.Failover(replica, servers.FailoverAgreed)
	o.takes("{k0}", 8)

	// A slot is half way from one master to another. Old keys are still on the first, and new
	// keys are on the second.
	slot, from := cluster.Slot(name), replica
	masters := cluster.Masters()
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	cluster.BeginMigration(slot, from, to)
	o.takes("{k0}", 7)
	o.takes("{k0}new", 9)
	cluster.MigrateKeys(slot, from, to, 100)
	o.takes("{k0}", 6)
	cluster.FinishMigration(slot, from, to)
	o.takes("{k0}", 5)
	o.takes("{k0}new", 8)

	for _, node := range cluster.Nodes() {
		stats, err := node.Do("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stats, "cmdstat_command:") {
			t.Error("a node was asked for all commands that it has")
		}
	}

	// An operator inspects a log, with the rights of the user support.
	words = strings.Fields(strings.Replace(string(regexp.MustCompile(`(?m)^ACL SETUSER (support .*)$`).FindSubmatch(page)[1])+" "+string(more[1]), ">PASSWORD", ">pw", 1))
	for _, node := range cluster.Nodes() {
		if _, err := node.Do(append([]string{"ACL", "SETUSER"}, words...)...); err != nil {
			t.Fatal(err)
		}
	}
	o.settings.Store.Redis.URL = redisURL(t, strings.Replace(o.settings.Store.Redis.URL.Reveal(), "rls:", "support:", 1))
	o.takes("{k1}", 8)
	o.takes("{k2}", 8)
	o.inspects("{k1}")
	o.inspects("{k2}")
}

// TestClusterFindsASuccessor kills a master. It can send no redirection, so the client must
// find its successor by itself.
func TestClusterFindsASuccessor(t *testing.T) {
	cluster := servers.StartCluster(t)
	o := open(t, redisSettings(t, "redis-cluster://"+strings.Join(cluster.Addrs(), ",")))
	o.takes("{k}", 9)
	master := cluster.MasterOf("slidegate:{k}:3600000000")
	replica := cluster.ReplicaOf(master)
	master.Stop()
	cluster.Failover(replica, servers.FailoverTakeover)
	o.decides("{k}")
}

// TestRedisSentinel finds the master through sentinels. Their user has only the rights that
// docs/operate.md gives it. The test changes its password, freezes a sentinel, and kills the
// master.
func TestRedisSentinel(t *testing.T) {
	const first, second, own = "first-of-sentinels", "second-of-sentinels", "own-of-redis"
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^(ACL SETUSER finder .*)$`).FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/operate.md has no user for sentinels")
	}
	set := servers.StartSentinel(t, servers.SentinelOptions{Password: own, SentinelPassword: "between-sentinels"})
	sentinels := func(args ...string) {
		t.Helper()
		for _, s := range set.SentinelServers() {
			if _, err := s.Do(args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	sentinels(strings.Fields(strings.Replace(string(line[1]), ">PASSWORD", ">"+first, 1))...)

	s := redisSettings(t, "redis-sentinel://:"+own+"@"+strings.Join(set.Sentinels(), ",")+"/"+set.MasterName()+"/2")
	// The client waits so long for the frozen sentinel.
	s.Store.Timeout = time.Second
	s.Store.Redis.SentinelUsername = "finder"
	s.Store.Redis.SentinelPasswordFile = filepath.Join(t.TempDir(), "password")
	write(t, s.Store.Redis.SentinelPasswordFile, first)
	o := open(t, s)
	o.takes("k", 9)
	o.takes("k", 8)
	o.inspects("k")

	sentinels("ACL", "SETUSER", "finder", "<"+first, ">"+second)
	write(t, s.Store.Redis.SentinelPasswordFile, second)
	sentinels("CLIENT", "KILL", "USER", "finder")
	kill := func() {
		t.Helper()
		if _, err := set.Master().Do("CLIENT", "KILL", "USER", "default"); err != nil {
			t.Fatal(err)
		}
	}
	kill()
	o.takes("k", 7)

	// The test freezes the sentinel that the client uses. The client finds another one.
	for _, sentinel := range set.SentinelServers() {
		clients, err := sentinel.Do("CLIENT", "LIST")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(clients, "user=finder") {
			sentinel.Pause()
		}
	}
	kill()
	o.decides("k")
	o.takes("k", 6)

	// Without some of these rights the library works, but not properly. So the test looks for
	// denied commands.
	for _, sentinel := range set.SentinelServers() {
		sentinel.Resume()
		denied, err := sentinel.Do("ACL", "LOG")
		if err != nil || strings.Contains(denied, "reason\ncommand") || strings.Contains(denied, "reason\nchannel") {
			t.Errorf("the user of the sentinels lacks rights: %v\n%s", err, denied)
		}
	}

	master := set.Master()
	master.Stop()
	set.WaitMaster(master.Addr())
	o.decides("k")
	o.hides(first, second, own)
}

// TestPasswordThatChanges renews a password under a running service as the docs say. Then it
// removes and empties the file, and writes a wrong password.
func TestPasswordThatChanges(t *testing.T) {
	const first, second = "first-of-two", "second-of-two"
	server := servers.StartRedis(t, "--user", "rls", "on", ">"+first, "~*", "+@all")
	do := func(args ...string) {
		t.Helper()
		if _, err := server.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	s := redisSettings(t, "redis://"+server.Addr())
	s.Store.Redis.Username = "rls"
	s.Store.Redis.PasswordFile = filepath.Join(t.TempDir(), "password")
	write(t, s.Store.Redis.PasswordFile, first+"\n")
	o := open(t, s)
	o.takes("k", 9)

	do("ACL", "SETUSER", "rls", ">"+second)
	write(t, s.Store.Redis.PasswordFile, second)
	do("ACL", "SETUSER", "rls", "<"+first)
	do("CLIENT", "KILL", "USER", "rls")
	o.takes("k", 8)

	// Without the file the last password stays in use, and the log says so once.
	if err := os.Remove(s.Store.Redis.PasswordFile); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		do("CLIENT", "KILL", "USER", "rls")
		o.takes("k", 7-uint64(i))
	}
	write(t, s.Store.Redis.PasswordFile, "") // as if it were removed
	do("CLIENT", "KILL", "USER", "rls")
	o.takes("k", 5)
	warned := o.logs.FilterMessage("a file for connections cannot be read; its old content stays in use; correct the file")
	if warned.Len() != 1 || warned.All()[0].ContextMap()["setting"] != "store.redis.password_file" {
		t.Errorf("warnings: %v, want one", warned.All())
	}

	// The client uses a wrong password, because only Redis knows that it is wrong.
	write(t, s.Store.Redis.PasswordFile, "wrong-in-between")
	do("CLIENT", "KILL", "USER", "rls")
	if err := o.refused("k"); !strings.Contains(fmt.Sprint(err), "WRONGPASS") || strings.Contains(err.Error(), "wrong-in-between") {
		t.Errorf("with a wrong password: %v", err)
	}
	write(t, s.Store.Redis.PasswordFile, second)
	o.takes("k", 4)
	o.hides(first, second, "wrong-in-between")
}

// TestTLSThatChanges renews every certificate in front of a running service.
func TestTLSThatChanges(t *testing.T) {
	server, s := redisTLS(t)
	o := open(t, s)
	o.takes("k", 9)
	o.takes("k", 8)
	o.inspects("k")

	server.RenewTLS()
	if _, err := server.Do("CLIENT", "KILL", "TYPE", "normal"); err != nil {
		t.Fatal(err)
	}
	// TLS hides from the client that its idle connection is gone. So the first call may fail,
	// but no later one.
	_, _ = o.charge(t.Context(), "other", 0)
	o.takes("k", 7)

	// If only half of a file is written, the last good content stays in use.
	write(t, s.Store.Redis.TLS.KeyFile, "torn")
	if _, err := server.Do("PING"); err == nil {
		t.Error("the test's own client read a torn key")
	}
	fresh, err := o.Client.(*redis.Client).Options().Dialer(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := fresh.(*tls.Conn); !ok {
		t.Error("a torn key is used")
	}
	_ = fresh.Close()
}

func TestTLSNames(t *testing.T) {
	_, s := redisTLS(t)
	s.Store.Redis.TLS.ServerName = "localhost"
	open(t, s).takes("k", 9)

	for what, change := range map[string]func(*settings.Redis){
		"not its name":      func(r *settings.Redis) { r.TLS.ServerName = "elsewhere" },
		"unknown authority": func(r *settings.Redis) { r.TLS.CAFile = "" },
		"no certificate":    func(r *settings.Redis) { r.TLS.CertFile, r.TLS.KeyFile = "", "" },
	} {
		bad := s
		change(&bad.Store.Redis)
		err := open(t, bad).refused("k")
		// Without a certificate of the client, the error differs from run to run.
		if !strings.Contains(fmt.Sprint(err), "certificate") && what != "no certificate" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestBackAtOnce lets more connections fail than the pool of the library tolerates. When the
// server is back, the store decides the next call.
func TestBackAtOnce(t *testing.T) {
	server := servers.StartRedis(t)
	s := redisSettings(t, "redis://"+server.Addr())
	s.Store.Redis.PoolSize = 4
	everyCallTries(t)
	o := open(t, s)
	o.takes("k", 9)
	server.Stop()
	_ = o.refused("k") // by a connection that has ended
	for range 20 {
		if err := o.refused("k"); failure.Of(err) != failure.Connect {
			t.Fatalf("%v is of class %q, want %q", err, failure.Of(err), failure.Connect)
		}
	}
	server.Start()
	o.takes("k", 9)
}

// TestAbandonedConnections has callers give up while they connect. The connections fail later,
// and no later call uses one of them.
func TestAbandonedConnections(t *testing.T) {
	const callers = 4
	server, s := redisTLS(t)
	proxy := servers.StartProxy(t, server.Addr())
	s.Store.Redis.URL = redisURL(t, "rediss://"+proxy.Addr())
	s.Store.Timeout = 2 * time.Second
	s.Store.Redis.PoolSize = callers
	client, err := redisclient.New(redisclient.Options{Redis: s.Store.Redis, Section: "store.redis", Timeout: s.Store.Timeout, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	proxy.Blackhole(true) // connections are taken, and the greeting of TLS gets no answer
	ctx, giveUp := context.WithCancel(t.Context())
	var asks sync.WaitGroup
	for range callers {
		asks.Go(func() {
			if err := client.Ping(ctx).Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that gave up: got %v", err)
			}
		})
	}
	waitFor(t, "connections", func() bool { return proxy.Connections() == callers })
	giveUp()
	asks.Wait()
	waitFor(t, "the connections of callers that gave up", func() bool { return client.PoolStats().IdleConns == callers })
	proxy.Blackhole(false)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first call after it: %v", err)
	}
}
