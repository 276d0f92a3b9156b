package serving

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// TestReloadUnderLoad changes the rules several times under load.
func TestReloadUnderLoad(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		const many = 1_000_000
		rules := func(limit int) string { return strings.ReplaceAll(stack.PerKey, "100", strconv.Itoa(limit)) }
		rls := stack.Setup{Rules: rules(many), Env: settings}.Serve(t)
		calls, stop := load(t, rls)

		var last uint32
		for i := range 5 {
			before, sofar := stack.Generation(t, rls), calls.Load()
			if err := rls.WriteRules(rules(many + i + 1)); err != nil {
				t.Fatal(err)
			}
			process.Eventually(t, "the new generation", func() bool { return stack.Generation(t, rls) != before })
			// The load has gone on under the new rules.
			process.Eventually(t, "calls after the reload", func() bool { return calls.Load() > sofar+20 })
			out, err := stack.Limiter(t, rls)("api_key=k0")
			if err != nil {
				t.Fatal(err)
			}
			last = out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()
			if last != uint32(many+i+1) {
				t.Errorf("generation %d: got a limit of %d, want %d", i+2, last, many+i+1)
			}
		}
		good := stack.Generation(t, rls)
		if err := rls.WriteRules("domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n"); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "the broken file to be noticed", func() bool { return stack.Metric(t, rls, "slidegate_config_broken") == "1" })
		if got := stack.Generation(t, rls); got != good {
			t.Errorf("active generation with a broken file: got %s, want %s", got, good)
		}
		shown := stack.Page(t, rls.Admin()+"/rlconfig")
		for _, want := range []string{"BROKEN", "rules.yaml:4", "fortnight", "-1", "1000005 per 1h"} {
			if !strings.Contains(shown, want) {
				t.Errorf("/rlconfig does not have %q:\n%s", want, shown)
			}
		}
		// The line comes through a pipe, so it may be read after the metric has changed.
		process.Eventually(t, "a log line that tells of the broken file", func() bool {
			return slices.ContainsFunc(rls.Logs(), func(line map[string]any) bool {
				problems, _ := line["problems"].(string)
				return line["level"] == "error" && strings.Contains(problems, "fortnight")
			})
		})
		out, err := stack.Limiter(t, rls)("api_key=k0")
		if err != nil || out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != last {
			t.Errorf("with a broken file: got %v, %v, want the limit of %d", out, err, last)
		}
		if err := rls.WriteRules(rules(many + 100)); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "the repaired file to be taken", func() bool { return stack.Metric(t, rls, "slidegate_config_broken") == "0" })

		if err := stop(); err != nil {
			t.Errorf("a call failed during the reloads: %v", err)
		}
	})
}

// load sends calls over several connections until one of them is not allowed or stop is
// called. stop returns the errors.
func load(t *testing.T, rls *edge.RLSServer) (calls *atomic.Int64, stop func() error) {
	t.Helper()
	calls = new(atomic.Int64)
	errs := make([]error, 4)
	var asks []func(...string) (*rlsv3.RateLimitResponse, error)
	for range errs {
		asks = append(asks, stack.Limiter(t, rls))
	}
	end := process.Workers(t, len(errs), time.Millisecond, func(i, _ int) bool {
		calls.Add(1)
		// Every generation allows it, so a denial is as wrong as an error.
		out, err := asks[i]("api_key=k" + strconv.Itoa(i))
		if err == nil && out.GetOverallCode() != rlsv3.RateLimitResponse_OK {
			err = errors.New(out.GetOverallCode().String())
		}
		errs[i] = err
		return err == nil
	})
	stop = sync.OnceValue(func() error {
		end()
		return errors.Join(errs...)
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Logf("the load: %v", err) // why a test that waits for it has failed
		}
	})
	return calls, stop
}

// TestSIGHUPReloads sends SIGHUP while the files have not changed since they were
// refused. Only the signal makes rls read them again.
func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	rls := stack.Setup{Rules: stack.PerKey}.Serve(t)
	const refused = `slidegate_config_reloads_total{result="refused"}`
	if err := rls.WriteRules("domain: []\n"); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the broken file to be refused", func() bool { return stack.Metric(t, rls, refused) != "0" })
	before := stack.Metric(t, rls, refused)
	if err := rls.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the broken file to be refused again", func() bool { return stack.Metric(t, rls, refused) != before })
}

// TestSIGTERMLetsCallsFinish stops rls while a call waits for Redis. The drain delay
// is zero, so only that call keeps the process alive.
func TestSIGTERMLetsCallsFinish(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	rls := stack.Setup{Rules: stack.PerKey, Env: stack.OnRedis(redis.Addr())}.Serve(t)
	ask := stack.Limiter(t, rls)
	if _, err := ask("api_key=k"); err != nil {
		t.Fatal(err)
	}
	calls := func() string { return stack.Metric(t, rls, "slidegate_store_seconds_count") }
	redis.Pause()
	type answered struct {
		out *rlsv3.RateLimitResponse
		err error
	}
	answer := make(chan answered, 1)
	go func() {
		out, err := ask("api_key=k")
		answer <- answered{out, err}
	}()
	// The call is on its way when the kernel holds bytes that the frozen Redis does
	// not read.
	process.Eventually(t, "the call to wait for Redis", func() bool { return unread(t, redis.Addr()) > 0 })
	if got := calls(); got != "1" {
		t.Fatalf("store calls that have ended: got %s, want 1: the second must be in flight", got)
	}
	if err := rls.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the listener to be closed", func() bool {
		conn, err := rls.Connect(t.Context())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case <-rls.Exited():
		t.Error("rls has ended before its last call")
	default:
	}
	redis.Resume()
	if got := <-answer; got.err != nil || stack.Remaining(got.out) != 98 {
		t.Errorf("the call in flight: got %v, %v, want 98 remaining", got.out, got.err)
	}
	if code, err := rls.Wait(); code != 0 || err != nil {
		t.Errorf("exit code: got %d, %v, want 0", code, err)
	}
}

// unread returns how many bytes the listener on addr has not read, as the kernel
// reports.
func unread(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table := tree.Text(t, "/proc/net/tcp")
	local := ":" + strings.ToUpper(hex4(n))
	total := 0
	for line := range strings.Lines(table) {
		// sl local_address rem_address st tx_queue:rx_queue …; 01 is established
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasSuffix(f[1], local) || f[3] != "01" {
			continue
		}
		_, received, _ := strings.Cut(f[4], ":")
		queued, err := strconv.ParseInt(received, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += int(queued)
	}
	return total
}

func hex4(n int) string {
	s := strconv.FormatInt(int64(n), 16)
	return strings.Repeat("0", 4-len(s)) + s
}

// TestSIGTERMAnswersDuringTheDelay sends calls after the signal, over an old and over
// a new connection. A second signal ends rls at once.
func TestSIGTERMAnswersDuringTheDelay(t *testing.T) {
	t.Parallel()
	// Far longer than the test: only the second signal can end it.
	rls := stack.Setup{Rules: stack.PerKey, Env: map[string]string{stack.EnvDrainDelay: "10m"}}.Serve(t)
	old := stack.Limiter(t, rls)
	if _, err := old("api_key=k"); err != nil {
		t.Fatal(err)
	}
	if err := rls.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the drain", func() bool { return strings.Contains(rls.Output(), `"msg":"draining`) })
	for i := range 20 {
		for name, ask := range map[string]func(...string) (*rlsv3.RateLimitResponse, error){"old": old, "new": stack.Limiter(t, rls)} {
			if _, err := ask("api_key=k"); err != nil {
				t.Errorf("call %d over an %s connection while draining: %v", i+1, name, err)
			}
		}
	}
	if err := rls.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// As of a process that does not catch the signal.
	if code, err := rls.Wait(); code != -1 || err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("after a second signal: got exit code %d, %v, want that the signal ended it", code, err)
	}
}

// TestStopAfterTheDelay waits for the whole drain.
func TestStopAfterTheDelay(t *testing.T) {
	t.Parallel()
	const delay = 500 * time.Millisecond
	rls := stack.Setup{Rules: stack.PerKey, Env: map[string]string{stack.EnvDrainDelay: delay.String()}}.Serve(t)
	start := time.Now()
	code, err := rls.Stop()
	if code != 0 || err != nil {
		t.Errorf("exit code: got %d, %v, want 0", code, err)
	}
	if took := time.Since(start); took < delay {
		t.Errorf("rls ended after %v, want it to serve for %v first", took, delay)
	}
	for _, message := range []string{"starting", "rules active", "draining", "stopped"} {
		if n := strings.Count(rls.Output(), `"msg":"`+message); n != 1 {
			t.Errorf("log lines %q: got %d, want 1", message, n)
		}
	}
}

// TestAPortInUse expects one line that names the setting to change.
func TestAPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for env, setting := range map[string]string{
		stack.EnvGRPCAddress: "grpc.address", stack.EnvHTTPAddress: "http.address", stack.EnvAdminAddress: "admin.address",
	} {
		got := edge.Run(t, edge.RLSOptions{Env: map[string]string{env: taken.Addr().String()}}, "", "serve")
		want := "rls: " + setting + ": " + taken.Addr().String() + " is in use"
		if got.Code != 1 || !strings.HasPrefix(got.Stderr, want) || strings.Count(got.Stderr, "\n") != 1 || got.Stdout != "" {
			t.Errorf("%s in use: got exit code %d, %q and %q, want 1 and one line %q…", setting, got.Code, got.Stdout, got.Stderr, want)
		}
	}
}

// TestABadStart expects all problems at once, from serve and from validate.
func TestABadStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rules, tiers string
		env                map[string]string
		want               []string // one in each line
	}{
		{
			name: "rules",
			rules: `domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: minutes, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: -5}
  - key: route
    valeu: search
`,
			want: []string{"rules.yaml:4: ", "rules.yaml:6: ", "rules.yaml:8: "},
		},
		{
			name:  "tiers and rules",
			rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {unit: minutes, requests_per_unit: 5}\n",
			tiers: "tiers: [free]\ndefault: gold\nsubjects:\n  - id: a\n    tier: silver\n",
			want:  []string{"rules.yaml:4: ", "tiers.yaml:2: ", "tiers.yaml:5: "},
		},
		{
			name: "settings",
			env: map[string]string{
				stack.EnvStoreType: "memroy", stack.EnvStoreTimeout: "soon", "SLIDEGATE_GRPC_PORT": ":1", stack.EnvLogLevel: "loud",
			},
			want: []string{"SLIDEGATE_GRPC_PORT", stack.EnvStoreType, stack.EnvStoreTimeout, stack.EnvLogLevel},
		},
		{
			name:  "settings and rules",
			rules: "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {unit: minutes, requests_per_unit: 5}\n",
			env:   map[string]string{stack.EnvLogLevel: "loud"},
			want:  []string{stack.EnvLogLevel, "rules.yaml:4: "},
		},
		{
			name: "a file that is not there",
			env:  map[string]string{stack.EnvRulesPath: "/nowhere/rules.yaml"},
			want: []string{"/nowhere/rules.yaml"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := edge.RLSOptions{Env: maps.Clone(tt.env)}
			if o.Env == nil {
				o.Env = make(map[string]string)
			}
			if tt.rules != "" {
				o.Env[stack.EnvRulesPath] = configtest.Write(t, "rules.yaml", tt.rules)
			}
			if tt.tiers != "" {
				o.Env[stack.EnvTiersPath] = configtest.Write(t, "tiers.yaml", tt.tiers)
			}
			for _, command := range []string{"serve", "validate"} {
				got := edge.Run(t, o, "", command)
				if got.Code != 1 || got.Stdout != "" {
					t.Errorf("rls %s: got exit code %d and %q on standard output, want 1 and nothing", command, got.Code, got.Stdout)
				}
				problems := strings.TrimPrefix(got.Stderr, "rls: the configuration is not valid:\n")
				for _, want := range tt.want {
					if strings.Count(problems, want) != 1 {
						t.Errorf("rls %s: standard error does not have %q once:\n%s", command, want, got.Stderr)
					}
				}
				if n := strings.Count(problems, "\n"); n != len(tt.want) {
					t.Errorf("rls %s: got %d problems, want %d:\n%s", command, n, len(tt.want), got.Stderr)
				}
			}
		})
	}
}

// TestCommands runs commands as processes of their own. TestCommandLine of cmd/rls has more.
func TestCommands(t *testing.T) {
	t.Parallel()
	if got := edge.Run(t, edge.RLSOptions{}, "", "version"); got.Code != 0 || !strings.HasPrefix(got.Stdout, "slidegate ") {
		t.Errorf("rls version: got exit code %d and %q, want 0 and slidegate …", got.Code, got.Stdout)
	}
	keyed := edge.RLSOptions{Env: map[string]string{"SLIDEGATE_SECRETS_KEY": "0123456789abcdef"}}
	if got := edge.Run(t, keyed, "x\n", "digest"); got.Code != 0 || len(got.Stdout) != 65 || strings.HasPrefix(got.Stdout, "2d71") {
		t.Errorf("rls digest with a secret: got exit code %d and %q, want another digest", got.Code, got.Stdout)
	}

	// TestHealthcheckOverTLS has the cases with TLS.
	rls := stack.Setup{Rules: stack.PerKey, Way: edge.Way{Listen: edge.TCP}}.Serve(t)
	probe := edge.RLSOptions{Env: map[string]string{stack.EnvGRPCAddress: rls.GRPC()}}
	if got := edge.Run(t, probe, "", "healthcheck"); got.Code != 0 || got.Stderr != "" {
		t.Errorf("rls healthcheck of a running one: got exit code %d and %q, want 0", got.Code, got.Stderr)
	}
	testAsk(t, probe)
	rls.Kill()
	if got := edge.Run(t, probe, "", "healthcheck"); got.Code != 1 || !strings.Contains(got.Stderr, "nothing listens on "+rls.GRPC()) {
		t.Errorf("rls healthcheck of one that is gone: got exit code %d and %q, want 1 and its address", got.Code, got.Stderr)
	}
}

// testAsk runs the command ask against an rls with the rules stack.PerKey.
func testAsk(t *testing.T, probe edge.RLSOptions) {
	t.Helper()
	for _, tt := range []struct {
		args string
		code int
		want string // in what it prints
	}{
		{"--domain edge --descriptor api_key=asked", 0, "OK  per-key: "},
		{"--domain edge --descriptor api_key=asked --until-denied 1000", 0, " remaining; retry after "},
		{"--domain edge --descriptor api_key=reader --hits 0", 0, "OK  per-key: 100 of 100 remaining\n"},
		{"--domain edge --descriptor api_key=reader --hits 0 --until-denied 2", 1, "OK  per-key: 100 of 100 remaining\n"},
		{"--domain edge --descriptor api_key=large --hits 1000000", 0, " remaining; the cost is above the limit\n"},
		{"--domain edge --descriptor unknown=x --until-denied 2", 1, "denied none of 2 requests"},
		{"--domain edge --descriptor unknown=x", 0, "OK  no limit"},
		{"--domain edge --descriptor unknown=x --descriptor api_key=several", 0, "OK  no limit; per-key: "},
		{"--domain edge --descriptor x", 2, "--descriptor"},
		{"--domain edge --descriptor a=b --address 127.0.0.1:1", 1, "127.0.0.1:1"},
	} {
		got := edge.Run(t, probe, "", append([]string{"explain", "--live"}, strings.Fields(tt.args)...)...)
		if got.Code != tt.code || !strings.Contains(got.Stdout+got.Stderr, tt.want) {
			t.Errorf("rls explain --live %s: got exit code %d, %q and %q, want %d and %q", tt.args, got.Code, got.Stdout, got.Stderr, tt.code, tt.want)
		}
		if n := strings.Count(got.Stdout, "\n"); n > 3 {
			t.Errorf("rls explain --live %s prints %d answers, want the last three at most:\n%s", tt.args, n, got.Stdout)
		}
	}
}
