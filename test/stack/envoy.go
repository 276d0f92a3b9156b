package stack

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// The files of envoy, from a folder below test.
const (
	EdgeConfig          = "../../envoy/ratelimit.yaml"
	SidecarConfig       = "../../envoy/sidecar-uds.yaml"
	AuthorizationConfig = "../../envoy/authorization.yaml"
	OneHopConfig        = "../../envoy/one-hop.yaml"
	TLSConfig           = "../../envoy/tls.yaml"
	InFlightConfig      = "../../envoy/in-flight.yaml"
	MCPConfig           = "../../envoy/mcp.yaml"
)

// EnvoyVersion returns the first two numbers of Envoy's version.
func EnvoyVersion(t *testing.T) [2]int {
	t.Helper()
	if _, err := exec.LookPath(edge.EnvoyProgram()); err != nil {
		edge.EnvoyAccepts(t, EdgeConfig) // which says what is missing
	}
	out, err := exec.CommandContext(t.Context(), edge.EnvoyProgram(), "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("envoy --version: %v\n%s", err, out)
	}
	m := regexp.MustCompile(`/(\d+)\.(\d+)\.\d+`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("envoy --version says %s", out)
	}
	var version [2]int
	for i := range version {
		if version[i], err = strconv.Atoi(string(m[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	return version
}

// FileSetup returns a setup with one of the files of envoy/ and the settings that the
// file needs.
func FileSetup(t *testing.T, config, rules, tiers string, change map[string]string) Setup {
	t.Helper()
	s := Setup{Config: config, Rules: rules, Tiers: tiers, Change: maps.Clone(change), Env: make(map[string]string)}
	switch config {
	case SidecarConfig:
		s.Env[EnvGRPCAddress] = "unix://" + filepath.Join(edge.SocketDir(t), "grpc.sock")
	case TLSConfig:
		s.TLS = servers.NewAuthority(t)
		s.Change = With(TrustingEnvoy(s.TLS), change)
	case AuthorizationConfig, OneHopConfig:
		s.Env[EnvTrustedEntry] = "tier"
	}
	return s
}

// PatientEnvoy returns changes of a file that give rls much time. On a busy machine answers
// and handshakes may take longer than the timeouts of the file, 50 to 250 ms. Envoy would then
// pass or deny a request that a test counts. Every test makes these changes and changes of
// addresses.
func PatientEnvoy(t *testing.T, config string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(map[string]string)
	for _, timeout := range []string{"timeout: 0.05s", "timeout: 0.2s", "timeout: 0.25s"} {
		if bytes.Contains(text, []byte(timeout)) {
			changes[timeout] = "timeout: 10s"
		}
	}
	return changes
}

// The paths in TLSConfig.
const (
	EnvoyCA   = "/etc/envoy/tls/ca.pem"
	EnvoyCert = "/etc/envoy/tls/client.pem"
	EnvoyKey  = "/etc/envoy/tls/client-key.pem"
)

// TrustingEnvoy returns the changes of TLSConfig for the certificates of an authority.
// Its servers have the name localhost.
func TrustingEnvoy(a *servers.Authority) map[string]string {
	ca, cert, key := a.ClientFiles()
	return map[string]string{
		EnvoyCA: ca, EnvoyCert: cert, EnvoyKey: key,
		"matcher: {exact: rls}": "matcher: {exact: localhost}",
	}
}

// WithCertificates returns a copy of TLSConfig with existing certificates.
func WithCertificates(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for from, to := range TrustingEnvoy(servers.NewAuthority(t)) {
		all = strings.ReplaceAll(all, from, to)
	}
	file = filepath.Join(t.TempDir(), "envoy.yaml")
	tree.Write(t, file, all)
	return file
}
