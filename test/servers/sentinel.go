package servers

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/process"
)

const (
	sentinelMaster   = "slidegate"
	sentinelReplicas = 2
	sentinelCount    = 3
	sentinelQuorum   = 2

	// In milliseconds. A master is replaced one or two seconds after it has stopped
	// answering. A failed failover is tried again after twice the timeout.
	sentinelDownAfter       = 800
	sentinelFailoverTimeout = 3000
	// See shortenPeriods. A replica can become master if the Sentinel's last answer
	// from it is younger than five ping periods. Answers come every second.
	sentinelPingPeriod     = "300"
	sentinelPeriod         = "500"
	sentinelTiltPeriod     = "1000"
	sentinelDownAfterFixed = "2500"

	// In milliseconds, and longer than a failover takes.
	handOverTime = "60000"
)

// SentinelOptions say what a Sentinel set is like. The zero value has no
// passwords.
type SentinelOptions struct {
	// Password is the password of the master and its replicas (requirepass).
	Password string
	// SentinelPassword is the password of the Sentinels.
	SentinelPassword string
	// Args are further options of the master and its replicas, as those of
	// StartRedis.
	Args []string
}

// A SentinelSet is a master with two replicas, and three Sentinels that watch
// them. All of them can be stopped, started and frozen one by one. Every method
// asks the Sentinels which server is the master.
//
// A data server that starts again is an empty master until the Sentinels make it a
// replica. That takes two or three seconds (twenty before Redis 7). A master that was replaced
// while it was running is a second master until then, and loses what clients write to it. A
// Sentinel that starts again keeps its state.
//
// The methods fail the test on an error and must be called from the test's
// goroutine.
type SentinelSet struct {
	t         process.TB
	data      []*RedisServer
	sentinels []*RedisServer
}

// StartSentinel starts a set and waits until a failover would work.
func StartSentinel(t process.TB, o SentinelOptions) *SentinelSet {
	t.Helper()
	set := &SentinelSet{t: t}
	args := append([]string{
		"--port", portArgument,
		"--masteruser", adminUser,
		"--masterauth", adminPassword(),
		"--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0",
	}, o.Args...)
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password)
	}
	for range 1 + sentinelReplicas {
		set.data = append(set.data, newRedis(t, "", args...))
	}
	for range sentinelCount {
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		s := &RedisServer{t: t, path: redisPath(t, ""), command: []string{config, "--sentinel"}}
		s.started = func() error { return shortenPeriods(s) }
		t.Cleanup(s.Stop)
		set.sentinels = append(set.sentinels, s)
	}
	err := set.replicate()
	if err == nil {
		err = set.watch(o.SentinelPassword)
	}
	if err != nil {
		t.Fatalf("servers: starting a Sentinel set: %v", err)
	}
	set.WaitOK()
	return set
}

// shortenPeriods shortens four periods that no option of a Sentinel sets.
//
// Pings: the default of a second is longer than sentinelDownAfter. A server that has
// just become master would be replaced before the first connection to it.
// Questions to the data servers (10 s) and news to the other Sentinels (2 s): with the defaults
// an old master becomes a replica only after 20 s.
// TILT: a Sentinel that a busy machine has delayed for two seconds stops acting for
// half a minute.
func shortenPeriods(s *RedisServer) error {
	_, err := s.do(stateTimeout, "SENTINEL", "DEBUG",
		"PING-PERIOD", sentinelPingPeriod, "INFO-PERIOD", sentinelPeriod, "PUBLISH-PERIOD", sentinelPeriod,
		"TILT-PERIOD", sentinelTiltPeriod)
	if refused := redis.Error(nil); errors.As(err, &refused) {
		// Redis 6.2 does not have the command. It gets a longer time before a failover.
		_, err = s.do(stateTimeout, "SENTINEL", "SET", sentinelMaster, "down-after-milliseconds", sentinelDownAfterFixed)
	}
	return err
}

// replicate starts the master and its replicas, and waits until they are
// connected: then the Sentinels find all of them in the master's first answer.
func (set *SentinelSet) replicate() error {
	if err := launchAll(set.data); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(set.data[0].Addr())
	for _, s := range set.data[1:] {
		// Not by an option: when the server starts again, the first master may be the
		// master no longer.
		if _, err := s.Do("REPLICAOF", host, port); err != nil {
			return err
		}
	}
	return eventually(set.t, func() error { return set.replicated(set.data[0]) })
}

// watch starts the Sentinels. Their files name the other Sentinels, because finding
// each other would take seconds. So all ports must be known before.
func (set *SentinelSet) watch(password string) error {
	var err error
	for range process.Attempts {
		if err = set.configure(password); err != nil {
			return err
		}
		for _, s := range set.sentinels {
			if err = s.start(); err != nil {
				break
			}
		}
		if err == nil {
			return nil
		}
		for _, s := range set.sentinels {
			s.Stop()
		}
	}
	return err
}

// configure picks ports for the Sentinels and writes their files.
func (set *SentinelSet) configure(password string) error {
	ids := make([]string, len(set.sentinels))
	for i, s := range set.sentinels {
		id := make([]byte, 20)
		_, _ = rand.Read(id) // never fails
		ids[i] = hex.EncodeToString(id)
		var err error
		if s.port, err = process.FreePort(); err != nil {
			return err
		}
	}
	host, port, _ := net.SplitHostPort(set.data[0].Addr())
	for i, s := range set.sentinels {
		lines := []string{
			"bind 127.0.0.1",
			fmt.Sprintf("port %d", s.port),
			"dir " + filepath.Dir(s.command[0]),
			fmt.Sprintf("user %s on >%s ~* &* +@all", adminUser, adminPassword()),
			"sentinel myid " + ids[i],
			fmt.Sprintf("sentinel monitor %s %s %s %d", sentinelMaster, host, port, sentinelQuorum),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", sentinelMaster, sentinelDownAfter),
			fmt.Sprintf("sentinel failover-timeout %s %d", sentinelMaster, sentinelFailoverTimeout),
			fmt.Sprintf("sentinel parallel-syncs %s %d", sentinelMaster, sentinelReplicas),
			fmt.Sprintf("sentinel auth-user %s %s", sentinelMaster, adminUser),
			fmt.Sprintf("sentinel auth-pass %s %s", sentinelMaster, adminPassword()),
			"sentinel sentinel-user " + adminUser,
			"sentinel sentinel-pass " + adminPassword(),
		}
		if password != "" {
			lines = append(lines, "requirepass "+password)
		}
		for j, other := range set.sentinels {
			if j != i {
				host, port, _ := net.SplitHostPort(other.Addr())
				lines = append(lines, fmt.Sprintf("sentinel known-sentinel %s %s %s %s", sentinelMaster, host, port, ids[j]))
			}
		}
		if err := os.WriteFile(s.command[0], []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Sentinels returns host:port of the Sentinels.
func (set *SentinelSet) Sentinels() []string {
	addrs := make([]string, len(set.sentinels))
	for i, s := range set.sentinels {
		addrs[i] = s.Addr()
	}
	return addrs
}

// SentinelServers returns the Sentinels themselves, in the order of Sentinels.
func (set *SentinelSet) SentinelServers() []*RedisServer { return slices.Clone(set.sentinels) }

// MasterName returns the name under which the Sentinels watch the master.
func (*SentinelSet) MasterName() string { return sentinelMaster }

// Master returns the server that the Sentinels name as the master, whether it
// runs or not. It waits until they agree.
func (set *SentinelSet) Master() *RedisServer {
	set.t.Helper()
	var master *RedisServer
	err := eventually(set.t, func() (err error) {
		master, err = set.named()
		return err
	})
	if err != nil {
		set.t.Fatalf("servers: finding the master: %v", err)
	}
	return master
}

// Replicas returns the servers that are not the master.
func (set *SentinelSet) Replicas() []*RedisServer {
	set.t.Helper()
	master := set.Master()
	return slices.DeleteFunc(slices.Clone(set.data), func(s *RedisServer) bool { return s == master })
}

// Failover makes a Sentinel begin to replace a running master. WaitMaster waits for
// the end of the failover.
func (set *SentinelSet) Failover() {
	set.t.Helper()
	err := eventually(set.t, func() error {
		for _, s := range set.sentinels {
			if s.answers() {
				// The Sentinel refuses while it finds no replica good enough.
				_, err := s.Do("SENTINEL", "FAILOVER", sentinelMaster)
				return err
			}
		}
		return errors.New("no Sentinel runs")
	})
	if err != nil {
		set.t.Fatalf("servers: failover: %v", err)
	}
}

// HandOver makes a Sentinel begin to replace a running master, which takes no more writes. So the
// next master has all of them.
func (set *SentinelSet) HandOver() {
	set.t.Helper()
	master := set.Master()
	// The Sentinel disconnects the clients that wait for its end.
	if _, err := master.Do("CLIENT", "PAUSE", handOverTime, "WRITE"); err != nil {
		set.t.Fatalf("servers: handing over: %v", err)
	}
	if err := eventually(set.t, func() error { return set.copied(master) }); err != nil {
		set.t.Fatalf("servers: handing over: %v", err)
	}
	set.Failover()
}

// copied returns nil if all running replicas have what the master has.
func (set *SentinelSet) copied(master *RedisServer) error {
	reply, err := master.do(stateTimeout, "INFO", "replication")
	if err != nil {
		return err
	}
	want := field(replyText(reply), "master_repl_offset")
	for _, s := range set.Replicas() {
		if reply, err = s.do(stateTimeout, "INFO", "replication"); err != nil {
			return err
		}
		if got := field(replyText(reply), "slave_repl_offset"); got != want {
			return fmt.Errorf("%s has %s of %s bytes", s.Addr(), got, want)
		}
	}
	return nil
}

// WaitMaster waits until all running Sentinels name the same master, which is not
// the one at notAddr and has the role of a master itself.
func (set *SentinelSet) WaitMaster(notAddr string) *RedisServer {
	set.t.Helper()
	var master *RedisServer
	err := eventually(set.t, func() (err error) {
		if master, err = set.named(); err != nil {
			return err
		}
		if master.Addr() == notAddr {
			return errors.New("it is still the master")
		}
		return isMaster(master)
	})
	if err != nil {
		set.t.Fatalf("servers: waiting for another master than %s: %v", notAddr, err)
	}
	return master
}

// WaitOK waits until all running Sentinels see each other and the running data
// servers, and the replicas are connected to the master.
func (set *SentinelSet) WaitOK() {
	set.t.Helper()
	err := eventually(set.t, func() error {
		master, err := set.named()
		if err != nil {
			return err
		}
		if err := isMaster(master); err != nil {
			return err
		}
		if err := set.replicated(master); err != nil {
			return err
		}
		for _, s := range set.sentinels {
			if s.answers() {
				if err := set.sees(s, master); err != nil {
					return fmt.Errorf("sentinel %s: %w", s.Addr(), err)
				}
			}
		}
		return nil
	})
	if err != nil {
		set.t.Fatalf("servers: waiting for the Sentinel set: %v", err)
	}
}

// named returns the master if all running Sentinels name the same one.
func (set *SentinelSet) named() (*RedisServer, error) {
	addr := ""
	for _, s := range set.sentinels {
		if !s.answers() {
			continue
		}
		reply, err := s.do(stateTimeout, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelMaster)
		if err != nil {
			return nil, fmt.Errorf("sentinel %s: %w", s.Addr(), err)
		}
		host, port, _ := strings.Cut(replyText(reply), "\n")
		if got := net.JoinHostPort(host, port); addr == "" {
			addr = got
		} else if got != addr {
			return nil, fmt.Errorf("one Sentinel names %s and another one %s", addr, got)
		}
	}
	for _, s := range set.data {
		if s.Addr() == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("the Sentinels that run name %q", addr)
}

func isMaster(s *RedisServer) error {
	if !s.answers() {
		return errors.New(s.Addr() + " does not run")
	}
	info, err := s.do(stateTimeout, "INFO", "replication")
	if err != nil {
		return err
	}
	if role := field(replyText(info), "role"); role != "master" {
		return fmt.Errorf("%s is a %s", s.Addr(), role)
	}
	return nil
}

// replicated returns nil if all other running servers are connected to master.
func (set *SentinelSet) replicated(master *RedisServer) error {
	_, port, _ := net.SplitHostPort(master.Addr())
	for _, s := range set.data {
		if s == master || !s.answers() {
			continue
		}
		reply, err := s.do(stateTimeout, "INFO", "replication")
		if err != nil {
			return err
		}
		info := replyText(reply)
		if field(info, "master_port") != port || field(info, "master_link_status") != "up" {
			return fmt.Errorf("%s is not a replica of %s that is connected", s.Addr(), master.Addr())
		}
	}
	return nil
}

// sees returns nil if a Sentinel finds all running servers well.
func (set *SentinelSet) sees(sentinel, master *RedisServer) error {
	flags := make(map[string]string)
	for _, what := range []string{"MASTERS", "REPLICAS", "SENTINELS"} {
		command := []string{"SENTINEL", what}
		if what != "MASTERS" {
			command = append(command, sentinelMaster)
		}
		reply, err := sentinel.do(stateTimeout, command...)
		if err != nil {
			return err
		}
		entries, _ := reply.([]any)
		for _, e := range entries {
			values := pairs(e)
			addr := net.JoinHostPort(values["ip"], values["port"])
			flags[addr] = values["flags"]
			// Valkey 9 keeps this flag on a Sentinel that once found the master down, until
			// it has to ask again. WaitOK asks that Sentinel itself too.
			if what == "SENTINELS" {
				flags[addr] = strings.ReplaceAll(flags[addr], ",master_down", "")
			}
			// The last news of a replica may be old.
			if what == "REPLICAS" && values["master-link-status"] != "ok" {
				flags[addr] += ",not connected to its master"
			}
		}
	}
	for _, s := range slices.Concat(set.data, set.sentinels) {
		want := "slave"
		switch {
		case s == sentinel || !s.answers():
			continue
		case s == master:
			want = "master"
		case slices.Contains(set.sentinels, s):
			want = "sentinel"
		}
		if got := flags[s.Addr()]; got != want {
			return fmt.Errorf("%s is %q, want %q", s.Addr(), cmp.Or(got, "unknown"), want)
		}
	}
	return nil
}

// pairs makes a map of an array of names and values.
func pairs(reply any) map[string]string {
	values, _ := reply.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(values); i += 2 {
		m[replyText(values[i])] = replyText(values[i+1])
	}
	return m
}
