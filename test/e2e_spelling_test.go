package test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/slidegate/slidegate/test/servers"
)

// onlyHTTP1 changes every file of envoy/ to an application that speaks HTTP/1.1
// alone, as a comment in ratelimit.yaml says.
var onlyHTTP1 = map[string]string{
	"        use_downstream_protocol_config:\n          http2_protocol_options: {}\n": "        explicit_http_config: {http_protocol_options: {}}\n",
}

// send2 sends one request over HTTP/2 and returns its status. Header fields are
// written as "name: value", and the value goes out exactly as it is. A request that
// Envoy refuses by a reset of its stream or connection has the status 0.
func send2(t *testing.T, addr, path string, lines ...string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	write := func(name, value string) {
		if err := encoder.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	write(":method", http.MethodGet)
	write(":scheme", "http")
	write(":authority", "api.example")
	write(":path", path)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		write(name, value)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	request := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}
	if err := framer.WriteHeaders(request); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%s %q: %v", path, lines, err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, err := strconv.Atoi(frame.PseudoValue("status"))
			if err != nil {
				t.Fatalf("%s %q: no status: %v", path, lines, err)
			}
			return status
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return 0
		}
	}
}

// eachFile runs a test with every file of envoy/, as it is and with an application
// that speaks HTTP/1.1 alone. rls takes its customers from a tiers file, or knows
// none where the file works without them.
func eachFile(t *testing.T, rules string, f func(t *testing.T, s *stack)) {
	t.Parallel()
	for _, config := range []string{edgeConfig, sidecarConfig, tlsConfig, authorizationConfig, oneHopConfig} {
		for upstream, change := range map[string]map[string]string{"HTTP1": onlyHTTP1, "HTTP2": nil} {
			for _, tiers := range []string{tiersOf("free"), ""} {
				if authorizes := config == authorizationConfig || config == oneHopConfig; tiers == "" && authorizes {
					continue // it lets known customers pass alone
				}
				name := fmt.Sprintf("%s %s %v", filepath.Base(config), upstream, tiers != "")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(t, fileSetup(t, config, rules, tiers, change).start(t))
				})
			}
		}
	}
}

// fileSetup returns a setup with one of the files of envoy/ and what that file needs.
func fileSetup(t *testing.T, config, rules, tiers string, change map[string]string) setup {
	t.Helper()
	s := setup{config: config, rules: rules, tiers: tiers, change: maps.Clone(change), env: make(map[string]string)}
	switch config {
	case sidecarConfig:
		s.env[envGRPCAddress] = "unix://" + filepath.Join(socketDir(t), "grpc.sock")
	case tlsConfig:
		s.tls = servers.NewAuthority(t)
		changes := trustingEnvoy(s.tls)
		maps.Copy(changes, change)
		s.change = changes
	case authorizationConfig:
		s.env[envTrustedEntry] = "tier"
	}
	return s
}

// twoPerKey limits a key, or a subject, to two requests. Nothing else is limited.
const twoPerKey = `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, window: 1h, requests: 2}
  - key: subject
    rate_limit: {name: per-subject, window: 1h, requests: 2}
`

// TestWhiteSpaceAroundAKey sends a key with spaces and tabs around it, which Envoy
// passes on over HTTP/2, after the limit of the key is used up.
func TestWhiteSpaceAroundAKey(t *testing.T) {
	eachFile(t, twoPerKey, func(t *testing.T, s *stack) {
		addr := s.envoy.Addr()
		// One key over HTTP/2, another one over HTTP/1.1: both of known customers.
		for _, key := range []string{"acme-old-key", "other-key"} {
			for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
				got := 0
				if key == "other-key" {
					a, _ := send(t, addr, get11("/", "x-api-key: "+key))
					got = a.status
				} else {
					got = send2(t, addr, "/", "x-api-key: "+key)
				}
				if got != want {
					t.Fatalf("%s: request %d of a limit of 2: got %d, want %d", key, i+1, got, want)
				}
			}
			passed := len(s.app.received())
			for _, value := range []string{" " + key, key + " ", "\t" + key, key + "\t", " \t " + key + " \t ", "  " + key, strings.Repeat(" ", 100) + key} {
				if got := send2(t, addr, "/", "x-api-key: "+value); got != http.StatusTooManyRequests {
					t.Errorf("HTTP/2, x-api-key: %q after the limit: got %d, want 429", value, got)
				}
				if got, _ := send(t, addr, get11("/", "x-api-key: "+value)); got.status != http.StatusTooManyRequests {
					t.Errorf("HTTP/1.1, x-api-key: %q after the limit: got %d, want 429", value, got.status)
				}
			}
			if n := len(s.app.received()) - passed; n != 0 {
				t.Errorf("%d requests with the key %s after its limit have reached the application, want none", n, key)
			}
		}
		s.mustHaveDecided()
	})
}
