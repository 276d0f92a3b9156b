package edge

import (
	"cmp"
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

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
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
	// RLS is host:port of the rate-limit service, or the path of its socket. Empty: as
	// the file says.
	RLS string
	// Others are further instances of it. Envoy spreads its calls over all.
	Others []string
	// TLS has Envoy's certificate for the rate-limit service, and must have signed the
	// service's. Nil: as the file says.
	TLS *servers.Authority
	// Replace holds further changes of the file's text, from old to new. The old text
	// must be there.
	Replace map[string]string
	// Concurrency is the number of worker threads. Zero: one.
	Concurrency int
}

// The addresses in the files of envoy/, by purpose. A file has one of each group.
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
	process *process.Process
	dir     string
	admin   string // host:port
	ingress string // host:port
	client  *http.Client
}

// Envoy starts an Envoy for the time of the test. It returns when Envoy forwards
// requests and, if o names a rate-limit service, has found that one healthy.
func Envoy(t process.TB, o EnvoyOptions) *EnvoyServer {
	t.Helper()
	binary := envoyBinary(t, o.Binary)
	e := &EnvoyServer{dir: t.TempDir(), client: &http.Client{Timeout: process.Timeout}}
	t.Cleanup(e.Stop)
	text, err := o.render()
	if err == nil {
		err = e.start(binary, text, max(1, o.Concurrency))
	}
	if err == nil {
		err = e.ready(o)
	}
	if err != nil {
		t.Fatalf("edge: envoy: %v", err)
	}
	return e
}

// EnvoyProgram returns the Envoy that the environment names, else envoy.
func EnvoyProgram() string { return cmp.Or(os.Getenv(envEnvoy), "envoy") }

func envoyBinary(t process.TB, named string) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(named, EnvoyProgram()))
	if err != nil {
		process.Missing(t, "envoy", envoyHint)
	}
	return path
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
			return "", fmt.Errorf("%s: address of the %s: %w", o.Config, r.what, err)
		}
	}
	if text, err = o.withCluster(text); err != nil {
		return "", fmt.Errorf("%s: the rate-limit service: %w", o.Config, err)
	}
	for from, to := range o.Replace {
		if !strings.Contains(text, from) {
			return "", fmt.Errorf("%s does not have %q", o.Config, from)
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
			return "", errors.New("it is there more than once")
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
	e.process, err = process.Start("envoy", exec.Command(binary,
		"-c", file,
		// Several Envoys run at a time.
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

// ready waits until Envoy has its ports and reports that it is ready.
func (e *EnvoyServer) ready(o EnvoyOptions) error {
	return e.process.Until(func() error {
		if e.admin == "" {
			// Envoy writes the file in one piece, after it has bound the port.
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

// findIngress asks Envoy for the port of the listener, which has this name in each file of envoy/.
func (e *EnvoyServer) findIngress() error {
	body, err := e.get("/listeners?format=json")
	if err != nil {
		return err
	}
	var listeners struct {
		Statuses []struct {
			Name  string `json:"name"`
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
	for _, l := range listeners.Statuses {
		if s := l.Local.Socket; l.Name == "ingress" && s.Port != 0 {
			e.ingress = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
			return nil
		}
	}
	return fmt.Errorf("listeners: got %s, want ingress with a port", body)
}

// Admin returns http://host:port of the admin interface.
func (e *EnvoyServer) Admin() string { return "http://" + e.admin }

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

// Stat returns the value of a counter or gauge. It is zero if Envoy does not have it;
// many appear with their first use.
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

// An AccessLogEntry is one line of the access log. Numbers are float64. A field without
// a value is nil.
type AccessLogEntry map[string]any

// AccessLog returns the lines written so far. Envoy writes a line shortly after the
// answer; WaitAccessLog waits for it.
func (e *EnvoyServer) AccessLog() []AccessLogEntry {
	var entries []AccessLogEntry
	for line := range strings.Lines(e.process.Stdout()) {
		var entry AccessLogEntry
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &entry) == nil {
			entries = append(entries, entry)
		}
	}
	return entries
}

// WaitAccessLog waits for an entry for which the condition is true and returns it.
func (e *EnvoyServer) WaitAccessLog(is func(AccessLogEntry) bool) (AccessLogEntry, error) {
	var found AccessLogEntry
	err := e.process.Until(func() error {
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
func (e *EnvoyServer) Output() string { return e.process.Output() }

// Stop ends Envoy and waits until it has ended. A second time is harmless.
func (e *EnvoyServer) Stop() {
	e.client.CloseIdleConnections()
	if e.process != nil {
		e.process.Kill()
	}
}

// EnvoyAccepts fails the test if Envoy finds a mistake in a configuration file. Envoy
// binds no ports and resolves no names for that.
func EnvoyAccepts(t testing.TB, file string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), envoyBinary(t, ""),
		"--mode", "validate", "--disable-hot-restart", "--log-level", "warn", "-c", file).CombinedOutput()
	if err != nil {
		t.Errorf("edge: envoy does not accept %s: %v\n%s", file, err, out)
	}
}
