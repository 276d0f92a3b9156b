package servers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	// envEnvoy names the variable that says which Envoy to run.
	envEnvoy  = "SLIDEGATE_TEST_ENVOY"
	envoyHint = "make envoy gets one; name it in " + envEnvoy
)

// EnvoyOptions say what to run. Only Config is required.
type EnvoyOptions struct {
	// Binary is the program. Empty: what the environment variable
	// SLIDEGATE_TEST_ENVOY names, else envoy in PATH.
	Binary string
	// Config is one of the files in envoy/. Its listener and its admin interface
	// get free ports of the loopback interface.
	Config string
	// Upstream is host:port of the application. Empty: as the file says.
	Upstream string
	// RLS is host:port of the rate-limit service, or the path of its socket where
	// the file has a socket. Empty: as the file says.
	RLS string
	// Others are further instances of it, which get their share of the questions.
	Others []string
	// TLS is whose certificate Envoy shows to the rate-limit service, and who must
	// have signed that one's. Nil: as the file says.
	TLS *Authority
	// Replace holds further changes of the file's text. What is to be replaced
	// must be there.
	Replace map[string]string
	// Concurrency is the number of worker threads. Zero: one.
	Concurrency int
}

// The addresses in the files of envoy/, by what they are for. A file has one of
// each group.
var (
	listenerAddresses = []string{"socket_address: {address: 0.0.0.0, port_value: 10000}"}
	adminAddresses    = []string{"socket_address: {address: 127.0.0.1, port_value: 9901}"}
	upstreamAddresses = []string{
		"socket_address: {address: app, port_value: 8080}",
		"socket_address: {address: 127.0.0.1, port_value: 8000}",
	}
	rlsAddresses = []string{
		"socket_address: {address: rls, port_value: 8081}",
		"pipe: {path: /run/rls/grpc.sock}",
	}
)

// freeAddress asks the kernel for a port.
const freeAddress = "socket_address: {address: 127.0.0.1, port_value: 0}"

// An EnvoyServer is a running Envoy. Its methods are safe for concurrent use.
type EnvoyServer struct {
	process *process
	dir     string
	admin   string // host:port
	ingress string // host:port
	client  *http.Client
}

// Envoy starts an Envoy for the time of the test.
func Envoy(t testing.TB, o EnvoyOptions) *EnvoyServer {
	t.Helper()
	e, err := StartEnvoy(o)
	if errors.Is(err, errMissing) {
		missing(t, "envoy", envoyHint)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// StartEnvoy starts an Envoy and returns once it forwards requests and, where it
// was given a rate-limit service, has found that one healthy.
func StartEnvoy(o EnvoyOptions) (*EnvoyServer, error) {
	binary, err := envoyBinary(o.Binary)
	if err != nil {
		return nil, err
	}
	text, err := o.render()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "envoy")
	if err != nil {
		return nil, err
	}
	e := &EnvoyServer{dir: dir, client: &http.Client{Timeout: startTimeout}}
	if err := e.start(binary, text, max(1, o.Concurrency)); err != nil {
		e.Stop()
		return nil, err
	}
	if err := e.ready(o); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

func envoyBinary(named string) (string, error) {
	if named == "" {
		named = os.Getenv(envEnvoy)
	}
	if named == "" {
		named = "envoy"
	}
	path, err := exec.LookPath(named)
	if err != nil {
		return "", fmt.Errorf("servers: envoy %w: %w", errMissing, err)
	}
	return path, nil
}

// render returns the text of the configuration with the addresses of o.
func (o EnvoyOptions) render() (string, error) {
	data, err := os.ReadFile(o.Config)
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, r := range []struct {
		what string
		from []string
		to   string
	}{
		{"listener", listenerAddresses, freeAddress},
		{"admin interface", adminAddresses, freeAddress},
		{"application", upstreamAddresses, endpoint(o.Upstream)},
		{"rate-limit service", rlsAddresses, endpoint(o.RLS)},
	} {
		if r.to == "" {
			continue
		}
		if text, err = replaceOne(text, r.from, r.to); err != nil {
			return "", fmt.Errorf("servers: %s: address of the %s: %w", o.Config, r.what, err)
		}
	}
	if text, err = o.reach(text); err != nil {
		return "", fmt.Errorf("servers: %s: the rate-limit service: %w", o.Config, err)
	}
	for from, to := range o.Replace {
		if !strings.Contains(text, from) {
			return "", fmt.Errorf("servers: %s does not have %q", o.Config, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text, nil
}

// replaceOne replaces the one occurrence of one of the texts.
func replaceOne(text string, from []string, to string) (string, error) {
	found := ""
	for _, f := range from {
		switch n := strings.Count(text, f); {
		case n == 0:
		case n > 1 || found != "":
			return "", fmt.Errorf("it is there more than once")
		default:
			found = f
		}
	}
	if found == "" {
		return "", fmt.Errorf("none of %q is there", from)
	}
	return strings.Replace(text, found, to, 1), nil
}

// endpoint writes an address as Envoy's configuration does.
func endpoint(address string) string {
	if strings.HasPrefix(address, "/") {
		return fmt.Sprintf("pipe: {path: %q}", address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("socket_address: {address: %q, port_value: %s}", host, port)
}

func (e *EnvoyServer) start(binary, text string, concurrency int) error {
	file := filepath.Join(e.dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	e.process, err = startProcess("envoy", exec.Command(binary,
		"-c", file,
		// Several run at a time, and none is ever restarted hot.
		"--disable-hot-restart",
		"--concurrency", strconv.Itoa(concurrency),
		"--admin-address-path", e.adminFile(),
		"--log-level", "warn",
		// The access log is written every 10 s otherwise.
		"--file-flush-interval-msec", "10",
	))
	return err
}

func (e *EnvoyServer) adminFile() string { return filepath.Join(e.dir, "admin") }

// ready waits for the ports and for Envoy's own word that it is ready.
func (e *EnvoyServer) ready(o EnvoyOptions) error {
	return e.process.until(func() error {
		if e.admin == "" {
			// Written in one piece, but maybe not yet.
			text, err := os.ReadFile(e.adminFile())
			if err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(string(text)); err != nil {
				return err
			}
			e.admin = string(text)
		}
		if _, err := e.get("/ready"); err != nil {
			return err
		}
		if o.RLS != "" {
			switch n, err := e.Stat("cluster.rls.membership_healthy"); {
			case err != nil:
				return err
			case n < uint64(1+len(o.Others)):
				return errors.New("the rate-limit service is not healthy")
			}
		}
		return e.findIngress()
	})
}

// findIngress asks which port the listener got.
func (e *EnvoyServer) findIngress() error {
	body, err := e.get("/listeners?format=json")
	if err != nil {
		return err
	}
	var listeners struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(body), &listeners); err != nil {
		return err
	}
	if len(listeners.Statuses) != 1 || listeners.Statuses[0].Local.Socket.Port == 0 {
		return fmt.Errorf("listeners: got %s, want one with a port", body)
	}
	s := listeners.Statuses[0].Local.Socket
	e.ingress = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
	return nil
}

// get asks the admin interface.
func (e *EnvoyServer) get(path string) (string, error) {
	resp, err := e.client.Get("http://" + e.admin + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}

// Addr returns host:port of the listener.
func (e *EnvoyServer) Addr() string { return e.ingress }

// URL returns http://host:port of the listener.
func (e *EnvoyServer) URL() string { return "http://" + e.ingress }

// Stat returns the value of a counter or gauge, zero if Envoy does not know it
// (yet: many appear with their first use).
func (e *EnvoyServer) Stat(name string) (uint64, error) {
	body, err := e.get("/stats?filter=" + url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, nil
}

// An AccessLogEntry is one line of the access log. Numbers are float64, and what
// Envoy has no value for is nil.
type AccessLogEntry map[string]any

// AccessLog returns the lines written so far. Envoy writes them shortly after
// the answer, so a test usually wants WaitAccessLog.
func (e *EnvoyServer) AccessLog() []AccessLogEntry {
	var entries []AccessLogEntry
	for line := range strings.Lines(e.process.stdout.String()) {
		var entry AccessLogEntry
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &entry) == nil {
			entries = append(entries, entry)
		}
	}
	return entries
}

// WaitAccessLog waits for an entry that the condition is true for and returns it.
func (e *EnvoyServer) WaitAccessLog(is func(AccessLogEntry) bool) (AccessLogEntry, error) {
	var found AccessLogEntry
	err := e.process.until(func() error {
		for _, entry := range e.AccessLog() {
			if is(entry) {
				found = entry
				return nil
			}
		}
		return errors.New("no such line in the access log")
	})
	return found, err
}

// Output returns everything that Envoy has printed: the access log and then its
// own messages.
func (e *EnvoyServer) Output() string {
	return e.process.stdout.String() + e.process.stderr.String()
}

// Stop ends Envoy and waits until it is gone. A second time is harmless.
func (e *EnvoyServer) Stop() {
	e.client.CloseIdleConnections()
	if e.process != nil {
		e.process.kill()
	}
	// What is left is a temporary file, which nobody misses.
	_ = os.RemoveAll(e.dir)
}

// EnvoyAccepts fails the test if Envoy finds something wrong with a configuration
// file, as it is. Nothing is bound or resolved for it.
func EnvoyAccepts(t testing.TB, file string) {
	t.Helper()
	binary, err := envoyBinary("")
	if err != nil {
		missing(t, "envoy", envoyHint)
	}
	out, err := exec.CommandContext(t.Context(), binary,
		"--mode", "validate", "--disable-hot-restart", "--log-level", "warn", "-c", file).CombinedOutput()
	if err != nil {
		t.Errorf("servers: envoy does not accept %s: %v\n%s", file, err, out)
	}
}
