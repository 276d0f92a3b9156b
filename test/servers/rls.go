package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// envRLS names the variable that says which rls to run, for instance one
	// built with the race detector.
	envRLS = "SLIDEGATE_TEST_RLS"

	// The variables of rls itself.
	envPrefix       = "SLIDEGATE_"
	envGRPCAddress  = envPrefix + "GRPC_ADDRESS"
	envHTTPAddress  = envPrefix + "HTTP_ADDRESS"
	envAdminAddress = envPrefix + "ADMIN_ADDRESS"

	anyPort = "127.0.0.1:0"
)

// rlsBinary builds rls once, unless a binary is named.
func rlsBinary(named string) (string, error) {
	if named == "" {
		named = os.Getenv(envRLS)
	}
	if named != "" {
		return exec.LookPath(named)
	}
	return rlsCommand.binary()
}

// RLSOptions say what to run. The zero value is rls with its built-in example
// and the embedded store, on free ports.
type RLSOptions struct {
	// Binary is the program. Empty: what the environment variable
	// SLIDEGATE_TEST_RLS names, else one that is built from this module.
	Binary string
	// Rules and Tiers are the texts of the two files. Empty: the built-in example.
	Rules, Tiers string
	// Env holds settings by the names of their environment variables. The
	// listeners are on free ports of the loopback interface unless they are in it.
	Env map[string]string
	// TLS is whose certificates rls uses, and whom it trusts to sign those of its
	// clients. Nil: no TLS.
	TLS *Authority
}

// environ is the environment of a process with these options. Settings of the
// test's own environment stay out.
func (o RLSOptions) environ() []string {
	env := map[string]string{
		envGRPCAddress:            anyPort,
		envHTTPAddress:            anyPort,
		envAdminAddress:           anyPort,
		envPrefix + "LOG_FORMAT":  "json",
		envPrefix + "DRAIN_DELAY": "0s", // nobody waits for a test's proxies
	}
	if o.TLS != nil {
		env[envPrefix+"GRPC_TLS_CLIENT_CA_FILE"], env[envPrefix+"GRPC_TLS_CERT_FILE"], env[envPrefix+"GRPC_TLS_KEY_FILE"] = o.TLS.ServerFiles()
	}
	for name, value := range o.Env {
		env[name] = value
	}
	all := withoutSettings(envPrefix)
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	return all
}

// Command returns a command of rls that is not started, with the settings of o.
// Rules and Tiers must be empty: name files in Env.
func (o RLSOptions) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	binary, err := rlsBinary(o.Binary)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = o.environ()
	return cmd, nil
}

// An RLSServer is an rls process. Start, Stop and Kill must be called by one
// goroutine; everything else is safe for concurrent use.
type RLSServer struct {
	options RLSOptions
	dir     string
	process *process
	bound   bound
}

// bound is what the first log line says of the listeners.
type bound struct {
	GRPC  []string `json:"grpc"`
	HTTP  string   `json:"http"`
	Admin string   `json:"admin"`
}

// RLS starts rls for the time of the test.
func RLS(t testing.TB, o RLSOptions) *RLSServer {
	t.Helper()
	s, err := StartRLS(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// StartRLS starts rls and returns once it serves. Close ends it.
func StartRLS(o RLSOptions) (*RLSServer, error) {
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		return nil, err
	}
	env := make(map[string]string, len(o.Env)+2)
	for name, value := range o.Env {
		env[name] = value
	}
	s := &RLSServer{options: o, dir: dir}
	s.options.Env = env
	for _, f := range []struct {
		text, path, setting string
		write               func(string) error
	}{
		{o.Rules, s.RulesFile(), "RULES_PATH", s.WriteRules},
		{o.Tiers, s.TiersFile(), "TIERS_PATH", s.WriteTiers},
	} {
		if f.text == "" {
			continue
		}
		if err := f.write(f.text); err != nil {
			s.Close()
			return nil, err
		}
		env[envPrefix+f.setting] = f.path
	}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// RulesFile is where the rules are, if they were given as a text.
func (s *RLSServer) RulesFile() string { return filepath.Join(s.dir, "rules.yaml") }

// TiersFile is where the tiers are, if they were given as a text.
func (s *RLSServer) TiersFile() string { return filepath.Join(s.dir, "tiers.yaml") }

// WriteRules replaces the rules file as editors do: a new file is renamed over
// the old one.
func (s *RLSServer) WriteRules(text string) error { return replaceFile(s.RulesFile(), text) }

// WriteTiers replaces the tiers file in the same way.
func (s *RLSServer) WriteTiers(text string) error { return replaceFile(s.TiersFile(), text) }

func replaceFile(path, text string) error {
	fresh := path + ".new"
	return errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, path))
}

// Start starts a stopped rls again, on the same addresses, with the settings and
// files that it had. Of an embedded store only a snapshot is left, if there
// is one.
func (s *RLSServer) Start() error {
	cmd, err := s.options.Command(context.Background(), "serve")
	if err != nil {
		return err
	}
	if s.process, err = startProcess("rls", cmd); err != nil {
		return err
	}
	if err := s.process.until(s.serves); err != nil {
		return err
	}
	s.options.Env[envGRPCAddress] = strings.Join(s.bound.GRPC, ",")
	s.options.Env[envHTTPAddress] = s.bound.HTTP
	s.options.Env[envAdminAddress] = s.bound.Admin
	return nil
}

// serves returns nil once rls has said where it listens and answers there.
func (s *RLSServer) serves() error {
	s.bound = bound{}
	if !s.logged("starting", &s.bound) || len(s.bound.GRPC) == 0 {
		return errors.New("it has not said where it listens")
	}
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	out, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("health: got %v, want SERVING", out.GetStatus())
	}
	return nil
}

// logged reads the first log line with a message into v.
func (s *RLSServer) logged(message string, v any) bool {
	for line := range strings.Lines(s.Output()) {
		var l struct {
			Message string `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Message == message {
			return json.Unmarshal([]byte(line), v) == nil
		}
	}
	return false
}

// Dial returns a connection to the address of GRPC, with TLS and the certificate of
// a client where rls wants that. It is made with the first call.
func (s *RLSServer) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if s.options.TLS != nil && !strings.HasPrefix(s.GRPC(), "unix:") {
		c, err := s.options.TLS.ClientConfig()
		if err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(c)
	}
	return grpc.NewClient(s.GRPC(), append(options, grpc.WithTransportCredentials(secure))...)
}

// GRPC returns the first address that Envoy may call: host:port or unix:///path.
func (s *RLSServer) GRPC() string { return s.bound.GRPC[0] }

// GRPCs returns all of these addresses, in the order of the setting.
func (s *RLSServer) GRPCs() []string { return s.bound.GRPC }

// HTTP returns http://host:port of the port with /json and /healthcheck.
func (s *RLSServer) HTTP() string { return "http://" + s.bound.HTTP }

// Admin returns http://host:port of the port with /metrics and /rlconfig.
func (s *RLSServer) Admin() string { return "http://" + s.bound.Admin }

// Output returns everything that the process has printed since it was started.
func (s *RLSServer) Output() string { return s.process.output() }

// Logs returns the log lines since the process was started.
func (s *RLSServer) Logs() []map[string]any {
	var lines []map[string]any
	for line := range strings.Lines(s.Output()) {
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// Exited is closed when the process has ended.
func (s *RLSServer) Exited() <-chan struct{} { return s.process.exited }

// Signal sends a signal.
func (s *RLSServer) Signal(sig os.Signal) error { return s.process.signal(sig) }

// Wait waits until the process ends and returns its exit code, or -1 and the
// signal that ended it.
func (s *RLSServer) Wait() (int, error) { return s.process.wait() }

// Stop sends SIGTERM and waits until the process has ended; see Wait.
func (s *RLSServer) Stop() (int, error) {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	return s.Wait()
}

// Kill ends the process without a word, and waits until it is gone.
func (s *RLSServer) Kill() { s.process.kill() }

// Close ends the process and removes its files. A second time is harmless.
func (s *RLSServer) Close() {
	if s.process != nil {
		s.process.kill()
	}
	// What is left are temporary files, which nobody misses.
	_ = os.RemoveAll(s.dir)
}
