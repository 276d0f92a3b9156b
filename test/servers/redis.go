package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidegate/slidegate/test/process"
)

const (
	redisBinary = "redis-server"
	redisHint   = "install Redis 6.2 or later, for instance: apt-get install redis-server"

	// envRedis names the variable that says which redis-server to run.
	envRedis = "SLIDEGATE_TEST_REDIS"

	// stateTimeout bounds the question for a node's state. A node that hangs must not
	// delay the questions to the others.
	stateTimeout = time.Second

	// busOffset is how far the port of a cluster node's bus is above its port.
	busOffset = 10000

	// adminUser is an ACL user that every server has. With it a test can inspect and
	// repair a server whatever rights the default user has. Replicas and Sentinels
	// connect with it.
	adminUser = "test-admin"
)

// adminPassword is the password of adminUser in this process.
var adminPassword = sync.OnceValue(rand.Text)

// Redis starts a redis-server for the time of the test and returns its address
// as host:port. It keeps nothing on disk.
func Redis(t process.TB) string {
	t.Helper()
	return StartRedis(t).Addr()
}

// A RedisServer is a redis-server process that a test can stop, start again on
// the same port, and freeze. Its methods may be called in any state. They must be
// called from the test's goroutine and fail the test on an error. Do returns its
// error and is safe for concurrent use.
type RedisServer struct {
	t       process.TB
	path    string
	command []string // what it runs with, but for the port
	bus     bool     // the port busOffset above must be free as well
	port    int
	tls     *Authority // nil: no TLS
	// started, if set, is called after every start.
	started func() error

	process *process.Process // nil while stopped
	paused  bool
}

// StartRedis starts a redis-server that is killed when the test ends. args are
// further options of redis-server, a word each, for instance "--maxmemory", "3mb"
// or "--replicaof", host, port; they are used at every start.
func StartRedis(t process.TB, args ...string) *RedisServer {
	t.Helper()
	return StartRedisBinary(t, "", args...)
}

// StartRedisBinary is StartRedis with a binary. Empty: the one that the environment
// names, else redis-server.
func StartRedisBinary(t process.TB, binary string, args ...string) *RedisServer {
	t.Helper()
	s := newRedis(t, binary, append([]string{"--port", portArgument}, args...)...)
	if err := s.launch(); err != nil {
		t.Fatalf("servers: starting %s: %v", s.path, err)
	}
	return s
}

// portArgument stands for the port in RedisServer.command.
const portArgument = "{port}"

// newRedis returns a stopped server that keeps nothing on disk and has adminUser.
// args must say where portArgument goes.
func newRedis(t process.TB, binary string, args ...string) *RedisServer {
	t.Helper()
	s := &RedisServer{t: t, path: redisPath(t, binary), command: []string{
		"--bind", "127.0.0.1",
		"--save", "",
		"--appendonly", "no",
		"--dir", t.TempDir(),
		"--daemonize", "no",
		"--user", adminUser, "on", ">" + adminPassword(), "~*", "&*", "+@all",
	}}
	s.command = append(s.command, args...)
	t.Cleanup(s.Stop)
	return s
}

// redisPath finds the redis-server to run.
func redisPath(t process.TB, binary string) string {
	t.Helper()
	named := cmp.Or(binary, os.Getenv(envRedis), redisBinary)
	path, err := exec.LookPath(named)
	if err != nil {
		process.Missing(t, named, redisHint)
	}
	return path
}

// Addr returns host:port, which stays the same across Stop and Start.
func (s *RedisServer) Addr() string {
	return process.Address(s.port)
}

// Start starts a stopped server again, empty, on the same port.
func (s *RedisServer) Start() {
	s.t.Helper()
	if s.process != nil {
		return
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("servers: starting %s again on %s: %v", s.path, s.Addr(), err)
	}
}

// Stop kills the server, frozen or not, and waits until it is gone. Its
// connections are reset and its data is lost.
func (s *RedisServer) Stop() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	s.process, s.paused = nil, false
}

// Pause freezes the server: the kernel still accepts connections and bytes, and the
// server does not answer.
func (s *RedisServer) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.paused = true
}

// Resume lets a frozen server go on, with everything that was sent meanwhile.
func (s *RedisServer) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.paused = false
}

// answers says whether the server is neither stopped nor frozen.
func (s *RedisServer) answers() bool { return s.process != nil && !s.paused }

func (s *RedisServer) signal(sig os.Signal) {
	s.t.Helper()
	signal(s.t, s.process, s.path, sig)
}

// Do sends one command as a user with all rights and returns the reply as text. A number is in
// digits, a null is empty, and an array has one line for each element. An error reply of the
// server is an error with its text. Do uses a connection of its own, which maxclients counts.
func (s *RedisServer) Do(args ...string) (string, error) {
	reply, err := s.do(process.Timeout, args...)
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("servers: %s to %s: %w", strings.Join(args[:min(2, len(args))], " "), s.Addr(), err)
	}
	return replyText(reply), nil
}

// do returns the reply as go-redis has it in RESP2: string, int64 or []any.
func (s *RedisServer) do(timeout time.Duration, args ...string) (any, error) {
	var config *tls.Config
	if s.tls != nil {
		var err error
		if config, err = s.tls.ClientConfig(); err != nil {
			return nil, err
		}
	}
	return s.doTLS(config, timeout, args...)
}

// doTLS is do with a TLS configuration, nil for none.
func (s *RedisServer) doTLS(config *tls.Config, timeout time.Duration, args ...string) (any, error) {
	client := redis.NewClient(&redis.Options{
		Addr:                     s.Addr(),
		Username:                 adminUser,
		Password:                 adminPassword(),
		Protocol:                 2,
		PoolSize:                 1,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              timeout,
		ReadTimeout:              timeout,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		TLSConfig:                config,
	})
	defer client.Close()
	command := make([]any, len(args))
	for i, a := range args {
		command[i] = a
	}
	// Not the test's context: that one has ended when cleanups run.
	return client.Do(context.Background(), command...).Result()
}

func replyText(reply any) string {
	switch r := reply.(type) {
	case nil:
		return ""
	case []any:
		lines := make([]string, len(r))
		for i, element := range r {
			lines[i] = replyText(element)
		}
		return strings.Join(lines, "\n")
	default:
		return fmt.Sprint(r)
	}
}

// field returns the value of "name:value" in the reply to a command like INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// launchAll starts new servers at the same time.
func launchAll(all []*RedisServer) error {
	errs := make([]error, len(all))
	var starts sync.WaitGroup
	for i, s := range all {
		starts.Go(func() { errs[i] = s.launch() })
	}
	starts.Wait()
	return errors.Join(errs...)
}

// launch starts a new server on a free port.
func (s *RedisServer) launch() error {
	var offsets []int
	if s.bus {
		offsets = []int{busOffset}
	}
	return process.Launch(func(port int) error {
		s.port = port
		return s.start()
	}, offsets...)
}

// start runs one process and waits until it answers, or has failed.
func (s *RedisServer) start() error {
	args := make([]string, len(s.command))
	for i, a := range s.command {
		args[i] = strings.ReplaceAll(a, portArgument, strconv.Itoa(s.port))
	}
	p, err := process.Start(s.path, exec.Command(s.path, args...))
	if err != nil {
		return err
	}
	if err := p.Until(func() error { return s.ready(p) }); err != nil {
		p.Kill()
		return err
	}
	s.process = p
	if s.started == nil {
		return nil
	}
	if err := s.started(); err != nil {
		s.Stop()
		return err
	}
	return nil
}

// ready returns nil once our process answers. It compares the process id: if another
// process took the port, that one answers while ours is about to fail.
func (s *RedisServer) ready(p *process.Process) error {
	// go-redis would print every attempt that fails.
	if err := process.Reach(s.Addr()); err != nil {
		return err
	}
	// INFO is answered by every server in every state.
	reply, err := s.do(time.Second, "INFO")
	if err != nil {
		return err
	}
	info := replyText(reply)
	if field(info, "process_id") != strconv.Itoa(p.ID()) {
		return errors.New("another process answers on this port")
	}
	if field(info, "loading") == "1" {
		return errors.New("it is loading")
	}
	return nil
}

// eventually calls ready until it returns nil, the test has ended, or a time has
// passed that is far longer than anything takes.
func eventually(t process.TB, ready func() error) error {
	var last error
	if !process.Poll(process.Timeout, func() bool {
		last = ready()
		return last == nil || t.Context().Err() != nil
	}) {
		return fmt.Errorf("not within %v: %w", process.Timeout, last)
	}
	if last != nil {
		return errors.Join(t.Context().Err(), last)
	}
	return nil
}

// signal sends a signal to a server, which must not be stopped.
func signal(t process.TB, p *process.Process, name string, sig os.Signal) {
	t.Helper()
	if p == nil {
		t.Fatalf("servers: sending %v to a stopped %s", sig, name)
		return
	}
	if err := p.Signal(sig); err != nil {
		t.Fatalf("%v", err)
	}
}
