package check

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// Parts of the cluster rls.
const (
	http2      = "        explicit_http_config:\n          http2_protocol_options:\n            # Finds a peer"
	breakers   = "    # The default bound is 1024 calls in flight."
	health     = "    # Without them Envoy goes on calling an instance that hangs or drains.\n    health_checks:\n"
	panics     = "    common_lb_config:\n"
	rlsPort    = "socket_address: {address: rls, port_value: 8081}"
	assignment = "    load_assignment:\n      cluster_name: rls\n"
	maxCalls   = "max_requests: 16384"
	panicAt1   = "healthy_panic_threshold: {value: 1}"
	waits      = "              timeout: 0.05s\n"
	filterCall = "                  envoy_grpc: {cluster_name: rls}\n                  # Only calls of"
	timedOut   = "cluster.rls.upstream_rq_timeout"
)

// noHealthChecks takes the health checks away: Envoy then knows an endpoint only by its calls.
var noHealthChecks = patch{find: health, until: panics}

// ejecting is a cluster that ejects rls after one call that timed out.
func ejecting(more ...patch) setup {
	return setup{own: true, patches: append([]patch{
		noHealthChecks,
		{find: assignment, put: "    outlier_detection: {consecutive_5xx: 1, consecutive_gateway_failure: 1, base_ejection_time: 300s, interval: 0.1s, max_ejection_percent: 100}\n" + assignment},
	}, more...)}
}

// stop freezes rls. It returns when each of its threads has stopped.
func (r *running) stop() {
	if err := r.rls.Signal(syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	process.Eventually(r.t, "rls stops", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", r.rls.ID()))
		return err == nil && !slices.ContainsFunc(threads, func(thread string) bool {
			state, err := os.ReadFile(thread)
			return err == nil && !bytes.Contains(state, []byte(") T "))
		})
	})
}

// freeze lets one call time out.
func freeze(r *running) {
	r.stop()
	process.Eventually(r.t, timedOut, func() bool { // on a busy machine the first call may end before it is sent
		r.get(1, "/login")
		n, err := r.envoy.Stat(timedOut)
		return err == nil && n > 0
	})
	if err := r.rls.Signal(syscall.SIGCONT); err != nil {
		r.t.Fatal(err)
	}
	process.Eventually(r.t, "rls answers", func() bool {
		resp, err := http.Get(r.rls.HTTP() + "/healthcheck")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

var callFaults = []fault{
	{row: 29, what: "a time below that of the store", setup: replace(waits, "              timeout: 0.005s\n"), want: []string{"error timeout-short ingress"}},
	{row: 30, what: "no time", setup: replace(waits, ""), want: []string{"warning timeout-default ingress"}},
	{row: 31, what: "a time of 0", setup: replace(waits, "              timeout: 0s\n"), want: []string{"error timeout-zero ingress"}},
	{row: 32, what: "HTTP/1.1", setup: setup{patches: []patch{
		{find: http2, until: breakers, put: "        explicit_http_config: {http_protocol_options: {}}\n"}, noHealthChecks,
	}}, passes: "/login", want: []string{"error cluster-http1 rls", "error no-answers"}},
	{row: 39, what: "no such cluster", setup: replace(filterCall, strings.Replace(filterCall, "rls}", "limits}", 1)), passes: "/login", want: []string{"error no-cluster limits", "error no-answers"}},
	{row: 65, what: "calls are repeated", setup: after("                  envoy_grpc: {cluster_name: rls}\n", "                  retry_policy: {num_retries: 2, retry_on: unavailable}\n"), want: []string{"warning calls-retried ingress"}},
	{row: 41, what: "the default circuit breaker", setup: cut(breakers, health), want: []string{"warning breaker-default rls"}},
	{row: 42, what: "the circuit breaker is met", setup: setup{own: true, patches: []patch{{find: maxCalls, put: "max_requests: 1"}, noHealthChecks}}, before: func(r *running) {
		r.stop() // so the first call stays under way
		first := make(chan int, 1)
		go func() { first <- r.get(1, "/login")[0] }()
		r.stat("cluster.rls.upstream_rq_active")
		r.get(3, "/login")
		if err := r.rls.Signal(syscall.SIGCONT); err != nil {
			r.t.Fatal(err)
		}
		<-first
	}, want: []string{"warning breaker-full rls"}},
	{row: 43, what: "one call at a time", setup: setup{own: true, patches: []patch{
		{find: http2, put: strings.Replace(http2, "            #", "            max_concurrent_streams: 1\n            #", 1)},
		{find: "        max_connections: 1024\n", put: "        max_connections: 1\n"},
		noHealthChecks,
	}}, before: freeze, want: []string{"warning calls-queue rls", "any calls-time-out rls", "any no-answers"}},
	{row: 44, what: "outlier detection", setup: before(assignment, "    outlier_detection: {}\n"), want: []string{"warning outlier-detection rls"}},
	{
		row: 45, what: "an ejected rls, panic threshold 0, time", setup: ejecting(patch{find: panicAt1, put: "healthy_panic_threshold: {value: 0}"}), before: freeze, passes: "/login",
		want: []string{"error endpoint-out rls", "warning outlier-detection rls", "any calls-time-out rls", "any no-answers"},
	},
	{row: 46, what: "an ejected rls, panic threshold 1, time", setup: ejecting(), before: freeze, want: []string{"warning endpoint-out rls", "warning outlier-detection rls", "any calls-time-out rls", "any no-answers"}},
	{row: 72, what: "denials that this Envoy does not see", setup: setup{own: true}, before: func(r *running) {
		for range 60 {
			if err := deny(r); err != nil {
				r.t.Fatal(err)
			}
		}
	}, flags: "--complete", want: []string{"warning denials-unseen", "error rule-not-reached per-subject"}},
}

// deny asks rls as another Envoy does, and is over the limit after two calls.
func deny(r *running) error {
	body := `{"domain": "edge", "descriptors": [{"entries": [{"key": "route", "value": "login"}, {"key": "remote_address", "value": "192.0.2.1"}]}]}`
	resp, err := http.Post(r.rls.HTTP()+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

const tlsSocket = `    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context:
          alpn_protocols: [h2]
          validation_context: {trusted_ca: {filename: /etc/envoy/tls/ca.pem}}
`

var endpointFaults = []fault{
	{row: 33, what: "a free port", setup: setup{calls: "$FREE", patches: []patch{noHealthChecks}}, passes: "/login", want: []string{"error other-address rls", "error no-answers"}},
	{row: 34, what: "a free port, and health checks", setup: setup{calls: "$FREE"}, passes: "/login", want: []string{"error endpoint-out rls", "error other-address rls", "error no-answers"}},
	{row: 35, what: "the HTTP port of rls", setup: setup{calls: "$HTTP", patches: []patch{noHealthChecks}}, passes: "/login", want: []string{"error other-address rls", "error no-answers"}},
	{
		row: 36, what: "TLS to plain text", setup: setup{patches: []patch{noHealthChecks, {find: assignment, put: tlsSocket + assignment}}}, passes: "/login",
		want: []string{"error tls-mismatch rls", "error no-answers"},
	},
	{row: 36, what: "plain text to TLS", setup: setup{rls: service{tls: true}, patches: []patch{noHealthChecks}}, passes: "/login", want: []string{"error tls-mismatch rls", "error no-answers"}},
	{row: 37, what: "the certificate of rls is not verified", setup: setup{base: "tls.yaml", rls: service{tls: true}, patches: []patch{
		{find: "          validation_context:\n", until: breakers},
	}}, want: []string{"warning tls-not-verified rls"}},
	{row: 38, what: "a certificate that ends", setup: setup{base: "tls.yaml", rls: service{tls: true, ends: time.Hour * 30}}, want: []string{"warning certificate-expires"}},
	{row: 40, what: "no endpoint", setup: setup{patches: []patch{
		{find: assignment + "      endpoints:\n      - lb_endpoints:\n        - endpoint:\n            address:\n              " + rlsPort, put: assignment + "      endpoints: []"},
	}}, passes: "/login", want: []string{"error no-endpoint rls", "error no-answers"}},
	{row: 47, what: "rls is dead", setup: setup{own: true, patches: []patch{noHealthChecks}}, before: func(r *running) { r.rls.Kill() }, flags: "--rules $RULES", passes: "/login", want: []string{"error no-answers"}},
	{row: 48, what: "rls is frozen, time", setup: setup{own: true, patches: []patch{noHealthChecks}}, before: freeze, want: []string{"error calls-time-out rls", "any no-answers"}},
}
