package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	// envRLS names the variable that says which rls to run, for instance one
	// built with the race detector.
	envRLS = "SLIDEGATE_TEST_RLS"

	// The variables of rls itself.
	envPrefix        = "SLIDEGATE_"
	envGRPCAddress   = envPrefix + "GRPC_ADDRESS"
	envGRPCTransport = envPrefix + "GRPC_TRANSPORT"
	envHTTPAddress   = envPrefix + "HTTP_ADDRESS"
	envAdminAddress  = envPrefix + "ADMIN_ADDRESS"

	anyPort    = "127.0.0.1:0"
	unixScheme = "unix://"
)

// rlsBinary returns the path of rls, which it builds unless a binary is named.
func rlsBinary(named string) (string, error) {
	if named = cmp.Or(named, os.Getenv(envRLS)); named != "" {
		return exec.LookPath(named)
	}
	return process.Build("cmd/rls")
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
	// TLS has the certificate of rls, and signs the certificates of its clients.
	// Nil: no TLS.
	TLS *servers.Authority
	// Way is how clients reach rls, unless Env and TLS say it. Empty parts: what the
	// environment variables SLIDEGATE_TEST_TRANSPORT and SLIDEGATE_TEST_LISTEN say.
	// StartRLS ignores it.
	Way Way
}

// environ returns the environment of a process with these options. It leaves out
// settings of rls in the test's own environment.
func (o RLSOptions) environ() []string {
	env := map[string]string{
		envGRPCAddress:            anyPort,
		envHTTPAddress:            anyPort,
		envAdminAddress:           anyPort,
		envPrefix + "LOG_FORMAT":  "json",
		envPrefix + "DRAIN_DELAY": "0s", // no load balancer has to notice the end
	}
	if o.TLS != nil {
		env[envPrefix+"GRPC_TLS_CLIENT_CA_FILE"], env[envPrefix+"GRPC_TLS_CERT_FILE"], env[envPrefix+"GRPC_TLS_KEY_FILE"] = o.TLS.ServerFiles()
	}
	maps.Copy(env, o.Env)
	all := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envPrefix) })
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
// goroutine. All other methods are safe for concurrent use.
type RLSServer struct {
	options RLSOptions
	dir     string
	process *process.Process
	bound   bound
}

// bound is the addresses in the first log line.
type bound struct {
	GRPC    []string `json:"grpc"`
	HTTP    string   `json:"http"`
	Admin   string   `json:"admin"`
	Metrics string   `json:"metrics"`
}

// RLS starts rls for the time of the test, and returns when rls serves.
func RLS(t process.TB, o RLSOptions) *RLSServer {
	t.Helper()
	var (
		s   *RLSServer
		err error
	)
	for range process.Attempts {
		s, err = newRLS(o.withWay(t))
		// Another test may have got the same port at the same time.
		if err == nil || !strings.Contains(err.Error(), "is in use") {
			break
		}
	}
	return s.live(t, err)
}

// StartRLS is RLS for a program that measures or shows something. The environment
// does not change its transport or its addresses.
func StartRLS(t process.TB, o RLSOptions) *RLSServer {
	t.Helper()
	s, err := newRLS(o)
	return s.live(t, err)
}

// live ends the test on an error, and s with the test.
func (s *RLSServer) live(t process.TB, err error) *RLSServer {
	t.Helper()
	if err != nil {
		t.Fatalf("edge: rls: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// ActToken may use every page of the admin port of an rls that [StartRLS] starts, unless its
// environment names another file of tokens, or none.
const ActToken = "act-0123456789abcdef0123456789abcdef"

func newRLS(o RLSOptions) (*RLSServer, error) {
	dir, err := os.MkdirTemp("", "rls")
	if err != nil {
		return nil, err
	}
	env := maps.Clone(o.Env)
	if env == nil {
		env = make(map[string]string)
	}
	s := &RLSServer{options: o, dir: dir}
	s.options.Env = env
	tokens := envPrefix + "ADMIN_TOKEN_FILE"
	if _, given := env[tokens]; !given {
		env[tokens] = filepath.Join(dir, "tokens")
		if err := os.WriteFile(env[tokens], []byte("act "+ActToken+" test\n"), 0o600); err != nil {
			s.Close()
			return nil, err
		}
	}
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

// WriteRules replaces the rules file; see servers.ReplaceFile.
func (s *RLSServer) WriteRules(text string) error { return servers.ReplaceFile(s.RulesFile(), text) }

// WriteTiers replaces the tiers file in the same way.
func (s *RLSServer) WriteTiers(text string) error { return servers.ReplaceFile(s.TiersFile(), text) }

// Start starts a stopped rls again, on the same addresses, with the same settings and
// files. An embedded store has lost its data, except for a snapshot.
func (s *RLSServer) Start() error {
	cmd, err := s.options.Command(context.Background(), "serve")
	if err != nil {
		return err
	}
	if s.process, err = process.Start("rls", cmd); err != nil {
		return err
	}
	if err := s.process.Until(s.serves); err != nil {
		return err
	}
	s.options.Env[envGRPCAddress] = strings.Join(s.bound.GRPC, ",")
	s.options.Env[envHTTPAddress] = s.bound.HTTP
	s.options.Env[envAdminAddress] = s.bound.Admin
	return nil
}

// serves returns nil once rls has logged its addresses and answers there.
func (s *RLSServer) serves() error {
	s.bound = bound{}
	if !s.logged("starting", &s.bound) || len(s.bound.GRPC) == 0 {
		return errors.New("it has not logged its addresses")
	}
	conn, err := s.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), process.Timeout)
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

// Dial returns a connection to the address of GRPC, with TLS and a client's
// certificate if rls uses TLS. The first call connects.
func (s *RLSServer) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if s.secured() {
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

// Metrics returns the URL of the metrics: on the port of SLIDEGATE_METRICS_ADDRESS, or else on
// that of Admin.
func (s *RLSServer) Metrics() string {
	return "http://" + cmp.Or(s.bound.Metrics, s.bound.Admin) + "/metrics"
}

// Output returns everything that the process has printed since it was started.
func (s *RLSServer) Output() string { return s.process.Output() }

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
func (s *RLSServer) Exited() <-chan struct{} { return s.process.Exited() }

// ID returns the process id.
func (s *RLSServer) ID() int { return s.process.ID() }

// Signal sends a signal.
func (s *RLSServer) Signal(sig os.Signal) error { return s.process.Signal(sig) }

// Wait waits until the process ends and returns its exit code, or -1 and the
// signal that ended it.
func (s *RLSServer) Wait() (int, error) { return s.process.Wait() }

// Stop sends SIGTERM and waits until the process has ended; see Wait.
func (s *RLSServer) Stop() (int, error) {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	return s.Wait()
}

// Kill ends the process by SIGKILL, and waits until it has ended.
func (s *RLSServer) Kill() { s.process.Kill() }

// Close ends the process and removes its files. A second time is harmless.
func (s *RLSServer) Close() {
	if s.process != nil {
		s.process.Kill()
	}
	// If removing fails, temporary files are left.
	_ = os.RemoveAll(s.dir)
}
