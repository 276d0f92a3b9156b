package servers

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

const (
	// envReference names the variable that says which envoyproxy/ratelimit to run.
	envReference  = "SLIDEGATE_TEST_REFERENCE"
	referenceName = "ratelimit"
	referenceHint = "make ratelimit builds one; name it in " + envReference
	// configCheck is the reference's check of rules files, in the folder of its server.
	configCheck = "ratelimit-config-check"

	// The offsets of its ports above the first.
	httpOffset  = 1
	debugOffset = 2
)

// ReferenceOptions say what to run. Rules and Redis are required.
type ReferenceOptions struct {
	// Binary is the program, which may be another one that reads the same environment.
	// Empty: what SLIDEGATE_TEST_REFERENCE names.
	Binary string
	// Rules is the text of its rules file.
	Rules string
	// Redis is host:port.
	Redis string
	// Env holds further variables. They win over those that StartReference sets.
	Env map[string]string
}

// A ReferenceServer is a process of envoyproxy/ratelimit, or of a program with the same
// environment. Start, Stop, Terminate, WriteRules and the signals must be called by one
// goroutine. They fail the test on an error.
type ReferenceServer struct {
	t       process.TB
	path    string
	dir     string
	env     map[string]string
	port    int
	process *process.Process // nil while stopped
}

// StartReference starts an envoyproxy/ratelimit on free ports. It returns when the server
// answers, and kills it when the test ends.
func StartReference(t process.TB, o ReferenceOptions) *ReferenceServer {
	t.Helper()
	s := &ReferenceServer{t: t, path: cmp.Or(o.Binary, ReferenceBinary(t)), dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Dir(s.RulesFile()), 0o700); err != nil {
		t.Fatalf("servers: %v", err)
	}
	s.WriteRules(o.Rules)
	t.Cleanup(s.Stop)
	err := process.Launch(func(port int) error {
		s.port = port
		s.env = referenceEnv(s.dir, o.Redis, port)
		maps.Copy(s.env, o.Env)
		return s.start()
	}, httpOffset, debugOffset)
	if err != nil {
		t.Fatalf("servers: starting %s: %v", s.path, err)
	}
	return s
}

// ReferenceBinary returns the path of envoyproxy/ratelimit. If there is none, it skips the
// test.
func ReferenceBinary(t process.TB) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(envReference), referenceName))
	if err != nil {
		process.Missing(t, referenceName, referenceHint)
	}
	return path
}

// CheckWithReference runs the reference's own check on a directory of rules files. It returns
// what the check prints, and an error if the reference refuses the files.
func CheckWithReference(t process.TB, dir string) (string, error) {
	t.Helper()
	path := filepath.Join(filepath.Dir(ReferenceBinary(t)), configCheck)
	out, err := exec.CommandContext(t.Context(), path, "-config_dir", dir).CombinedOutput()
	return string(out), err
}

// referenceEnv is the environment of a usual deployment, on the loopback interface.
func referenceEnv(dir, redis string, port int) map[string]string {
	return map[string]string{
		"HOST": "127.0.0.1", "PORT": strconv.Itoa(port + httpOffset),
		"GRPC_HOST": "127.0.0.1", "GRPC_PORT": strconv.Itoa(port),
		"DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": strconv.Itoa(port + debugOffset),
		"RUNTIME_ROOT": dir, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false", "RUNTIME_IGNOREDOTFILES": "true",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis,
		"USE_STATSD": "false", "LOG_LEVEL": "info",
	}
}

// RulesFile is where the rules are.
func (s *ReferenceServer) RulesFile() string {
	return filepath.Join(s.dir, "ratelimit", "config", "rules.yaml")
}

// WriteRules replaces the rules file. A running server reads it soon.
func (s *ReferenceServer) WriteRules(text string) {
	s.t.Helper()
	// The server reads every file of the folder, so the new one is made elsewhere.
	fresh := filepath.Join(s.dir, "rules.new")
	if err := errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, s.RulesFile())); err != nil {
		s.t.Fatalf("servers: %v", err)
	}
}

// GRPC returns host:port of ShouldRateLimit. It stays the same across Stop and Start.
func (s *ReferenceServer) GRPC() string { return process.Address(s.port) }

// HTTP returns http://host:port of /healthcheck and /json.
func (s *ReferenceServer) HTTP() string { return "http://" + process.Address(s.port+httpOffset) }

// ID returns the number of the running process.
func (s *ReferenceServer) ID() int { return s.process.ID() }

// Start starts a stopped server again, on the same ports.
func (s *ReferenceServer) Start() {
	s.t.Helper()
	if s.process != nil {
		return
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("servers: starting %s again: %v", s.path, err)
	}
}

func (s *ReferenceServer) start() error {
	cmd := exec.Command(s.path)
	// Nothing of the test's own environment, which could have a variable of the same name.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p, err := process.Start(s.path, cmd)
	if err != nil {
		return err
	}
	if err := p.Until(s.ready); err != nil {
		p.Kill()
		return err
	}
	s.process = p
	return nil
}

// ready returns nil once all ports answer.
func (s *ReferenceServer) ready() error {
	if err := errors.Join(process.Reach(s.GRPC()), process.Reach(process.Address(s.port+debugOffset))); err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	resp, err := client.Get(s.HTTP() + "/healthcheck")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("/healthcheck: %s: %s", resp.Status, body)
	}
	return err
}

// Stop kills the server, frozen or not.
func (s *ReferenceServer) Stop() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Terminate sends SIGTERM and waits until the server has ended by itself.
func (s *ReferenceServer) Terminate() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code, err := s.process.Wait(); err != nil || code != 0 {
		s.t.Fatalf("servers: %s ended with code %d: %v\n%s", s.path, code, err, s.process.Output())
	}
	s.process = nil
}

// Pause freezes the server: the kernel still accepts connections and bytes, and the server
// does not answer.
func (s *ReferenceServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a frozen server go on.
func (s *ReferenceServer) Resume() { s.signal(syscall.SIGCONT) }

func (s *ReferenceServer) signal(sig syscall.Signal) {
	s.t.Helper()
	signal(s.t, s.process, s.path, sig)
}
