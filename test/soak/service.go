package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/servers"
)

// maxAge is how long a connection lives until its client is told to go.
const maxAge = 30 * time.Second

// The limits: one that nobody reaches, and one that is used up before anything
// counts.
const rules = `
domain: soak
descriptors:
  - key: caller
    rate_limit: {name: per-caller, unit: minute, requests_per_unit: 1000000}
  - key: greedy
    rate_limit: {name: used-up, unit: day, requests_per_unit: 1}
  - key: route
    value: search
    descriptors:
      - key: caller
        rate_limit: {name: search-per-caller, unit: minute, requests_per_unit: 1000000}
`

const apiKey = "soak-key"

// tiers is who has the API key.
func tiers() string {
	return fmt.Sprintf(`
tiers: [only]
default: only
subjects:
  - {id: somebody, tier: only, keys: [{sha256: %x}]}
`, sha256.Sum256([]byte(apiKey)))
}

// service is the process that is asked.
type service struct {
	*servers.RLSServer
	ends []end
}

// An end is where the service is called.
type end struct {
	network, address string
	tls              *tls.Config // nil: plain text
}

// start starts the service.
func start(t servers.TB, o options) (*service, error) {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "grpc.sock")
	// The socket is first: whoever starts the service asks there, without TLS,
	// whether it serves.
	env := map[string]string{
		"SLIDEGATE_GRPC_ADDRESS":            socket + ",127.0.0.1:0",
		"SLIDEGATE_GRPC_MAX_CONNECTION_AGE": maxAge.String(),
	}
	if o.transport != "" {
		env["SLIDEGATE_GRPC_TRANSPORT"] = o.transport
	}
	var client *tls.Config
	if o.tls {
		cert, key, config, err := certificate(dir)
		if err != nil {
			return nil, err
		}
		env["SLIDEGATE_GRPC_TLS_CERT_FILE"], env["SLIDEGATE_GRPC_TLS_KEY_FILE"], client = cert, key, config
	}
	rls, err := servers.StartRLS(servers.RLSOptions{Binary: o.rls, Rules: rules, Tiers: tiers(), Env: env})
	if err != nil {
		return nil, err
	}
	t.Cleanup(rls.Close)
	s := &service{RLSServer: rls}
	for _, address := range rls.GRPCs() {
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			s.ends = append(s.ends, end{network: "unix", address: path})
		} else {
			s.ends = append(s.ends, end{network: "tcp", address: address, tls: client})
		}
	}
	return s, nil
}

// certificate writes one that the service signs itself, and returns where, and what
// a client needs.
func certificate(dir string) (cert, key string, client *tls.Config, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", nil, err
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		return "", "", nil, err
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return "", "", nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}), 0o600))
	return cert, key, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}, err
}

// complaints are the warnings and errors that the service has logged.
func (s *service) complaints() []string {
	var all []string
	for _, line := range s.Logs() {
		if level, _ := line["level"].(string); level != "info" && level != "debug" {
			all = append(all, fmt.Sprint("the service has logged: ", line))
		}
	}
	return all
}

// state is what the service says of itself.
type state struct {
	goroutines, files float64
	heap, resident    float64 // bytes; heap is what is alive after a collection
	collections       float64
}

// inspect asks the service about itself, after it has collected its garbage.
func (s *service) inspect(ctx context.Context) (state, error) {
	if _, err := get(ctx, s.Admin()+"/debug/pprof/heap?gc=1"); err != nil {
		return state{}, err
	}
	text, err := get(ctx, s.Admin()+"/metrics")
	if err != nil {
		return state{}, err
	}
	return parseState(text)
}

// parseState reads the metrics that matter here.
func parseState(text string) (s state, err error) {
	found := 0
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		into := map[string]*float64{
			"go_goroutines":                 &s.goroutines,
			"process_open_fds":              &s.files,
			"go_memstats_heap_alloc_bytes":  &s.heap,
			"process_resident_memory_bytes": &s.resident,
			"go_gc_duration_seconds_count":  &s.collections,
		}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return s, fmt.Errorf("metric %s: %w", name, err)
		}
		found++
	}
	if found != 5 {
		return s, fmt.Errorf("the service's metrics have %d of the 5 figures wanted", found)
	}
	return s, lines.Err()
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Close = true // no connection of ours is to be counted
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}
