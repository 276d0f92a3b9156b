package dropin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/test/configtest"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

// deployed returns the environment of a deployment from internal/migrate/compat/testdata.
func deployed(t *testing.T, name string, places ...string) (environ []string) {
	t.Helper()
	text := tree.Read(t, filepath.Join("internal/migrate/compat/testdata/environments", name+".env"))
	for line := range strings.Lines(strings.NewReplacer(places...).Replace(text)) {
		if !strings.HasPrefix(line, "#") {
			environ = append(environ, strings.TrimSuffix(line, "\n"))
		}
	}
	return environ
}

// dropInRules are rules of the reference. Without tiers, each API key has a log of its own.
const dropInRules = `domain: edge
descriptors:
  - key: api_key
    rate_limit: {unit: hour, requests_per_unit: 2}
`

// TestDeployments starts rls as ratelimit with the environments of projects that deploy
// envoyproxy/ratelimit. It serves their rules and no others, or it ends with a message.
func TestDeployments(t *testing.T) {
	t.Parallel()
	program := stack.AsRatelimit(t)
	data := t.TempDir()
	config := filepath.Join(data, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	// The name has no ending, as keys of a ConfigMap need not have one.
	tree.Write(t, filepath.Join(config, "config"), dropInRules)
	authority := servers.NewAuthority(t)
	ca, cert, key := authority.ServerFiles()
	mapper := configtest.Write(t, "mapper.yaml", "mappings: []\n")
	for _, tt := range []struct {
		name    string
		files   bool // rules come from files
		tls     bool
		refused string // a part of the message
	}{
		{name: "istio", files: true},
		{name: "contour", files: true},
		{name: "softonic", files: true},
		{name: "istio-ratelimit-operator", files: true},
		{name: "envoy-gateway", tls: true},
		{name: "ai-gateway"},
		{name: "nomad"},
		{name: "kyma", refused: "environment: BACKEND_TYPE: memcached cannot keep a log of hits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t)
			environ := deployed(t, tt.name, "{{DATA}}", data, "{{REDIS}}", redis.Addr(), "{{XDS}}", "127.0.0.1:1", "{{ADDR}}", "127.0.0.1:0",
				"{{CERT}}", cert, "{{KEY}}", key, "{{CA}}", ca, "{{MAPPER}}", mapper)
			if tt.refused != "" {
				out, err := exec.Command("env", append([]string{"-i", "PATH=" + os.Getenv("PATH")}, append(environ, program)...)...).CombinedOutput()
				if err == nil || !strings.Contains(string(out), tt.refused) {
					t.Errorf("got %v and\n%s", err, out)
				}
				return
			}
			d := stack.StartDropIn(t, program, environ)
			secure := insecure.NewCredentials()
			if tt.tls {
				c, err := authority.ClientConfig()
				if err != nil {
					t.Fatal(err)
				}
				secure = grpccredentials.NewTLS(c)
			}
			client := rlsv3.NewRateLimitServiceClient(stack.Connect(t, process.Address(d.Port+1), grpc.WithTransportCredentials(secure)))
			ask := func(key string) rlsv3.RateLimitResponse_Code {
				ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
				defer cancel()
				out, err := client.ShouldRateLimit(ctx, stack.Request(1, "api_key="+key))
				if err != nil && tt.files {
					t.Fatalf("%v\n%s", err, d.Output())
				}
				return out.GetOverallCode()
			}
			if !tt.files {
				// Without its xDS server it has no rules, and not the built-in ones.
				for range 3 {
					if got := ask("demo-free"); got == rlsv3.RateLimitResponse_OVER_LIMIT {
						t.Errorf("got %v without rules", got)
					}
				}
				if strings.Contains(d.Output(), `"domains": ["edge"]`) {
					t.Errorf("the built-in rules are served:\n%s", d.Output())
				}
				return
			}
			for _, key := range []string{"alice", "bob", "carol", "dave"} {
				for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
					if got := ask(key); got != want {
						t.Errorf("%s, call %d: got %v, want %v\n%s", key, i+1, got, want, d.Output())
					}
				}
			}
			if keys, err := redis.Do("KEYS", "*"); err != nil || !strings.Contains(keys, "slidegate:") {
				t.Errorf("got keys %q, %v in Redis", keys, err)
			}
			if n := strings.Count(d.Output(), "started in place of envoyproxy/ratelimit"); n != 1 {
				t.Errorf("got %d lines that say what was understood:\n%s", n, d.Output())
			}
		})
	}
}

// TestLastFileOfTheReference removes the last file of rules while rls runs in place of
// envoyproxy/ratelimit: then no request is limited. A lock file of Emacs changes nothing.
func TestLastFileOfTheReference(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "config.yaml")
	lock := func() error { return os.Symlink("user@host.4711", filepath.Join(root, ".#config.yaml")) }
	if err := errors.Join(lock(), os.WriteFile(path, []byte(dropInRules), 0o600)); err != nil {
		t.Fatal(err)
	}
	d := stack.StartDropIn(t, stack.AsRatelimit(t), []string{"SLIDEGATE_STORE_TYPE=memory", "RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_IGNOREDOTFILES=false"})
	client := rlsv3.NewRateLimitServiceClient(stack.Connect(t, process.Address(d.Port+1), grpc.WithTransportCredentials(insecure.NewCredentials())))
	until := func(what string, want rlsv3.RateLimitResponse_Code) {
		t.Helper()
		err := d.Until(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			out, err := client.ShouldRateLimit(ctx, stack.Request(1, "api_key=alice"))
			if got := out.GetOverallCode(); err == nil && got != want {
				err = fmt.Errorf("got %v, want %v", got, want)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, d.Output())
		}
	}
	until("with rules", rlsv3.RateLimitResponse_OVER_LIMIT)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("without a file", rlsv3.RateLimitResponse_OK)
	err := d.Until(func() error { // its output may come later than its answer
		if !strings.Contains(d.Output(), "rls limits no request, as envoyproxy/ratelimit does") {
			return errors.New("nothing is said of it")
		}
		return nil
	})
	if err != nil {
		t.Errorf("%v:\n%s", err, d.Output())
	}
	tree.Write(t, path, dropInRules)
	until("with rules again", rlsv3.RateLimitResponse_OVER_LIMIT)
}

// TestTheExampleIsNeverServedByMistake starts rls, not as ratelimit, with variables of
// envoyproxy/ratelimit. It has no rules of its own, so it ends and says what to do.
func TestTheExampleIsNeverServedByMistake(t *testing.T) {
	t.Parallel()
	rls, err := process.Build("cmd/rls")
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "CONFIG_TYPE=FILE", "REDIS_URL=h:1", "BACKEND_TYPE=redis"} {
		for _, args := range [][]string{nil, {"serve"}, {"validate"}} {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			cmd := exec.CommandContext(ctx, rls, args...)
			cmd.Env = []string{variable, "SLIDEGATE_STORE_TYPE=memory"}
			out, err := cmd.CombinedOutput()
			cancel()
			name, _, _ := strings.Cut(variable, "=")
			if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), name+": ") || !strings.Contains(string(out), "SLIDEGATE_COMPAT=envoyproxy") {
				t.Errorf("rls %v with %s: got %v and\n%s", args, variable, err, out)
			}
		}
	}
}

// windowRules have a limit for each unit of a clock's window.
const windowRules = `
domain: edge
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 3}}
`

// fillsAlike sends four requests of one unit to each program. It returns false if one of the
// windows may have ended meanwhile.
func fillsAlike(t *testing.T, unit string, length time.Duration, programs ...*servers.ReferenceServer) bool {
	t.Helper()
	begin := time.Now()
	end := begin.Truncate(length).Add(length)
	var codes [][]rlsv3.RateLimitResponse_Code
	var resets []time.Duration
	for _, p := range programs {
		var seen []rlsv3.RateLimitResponse_Code
		for i := range 4 {
			got, out := stack.PostJSON(t, p.HTTP(), stack.Request(1, unit+"=k"))
			seen = append(seen, out.GetOverallCode())
			if i == 3 {
				// The reference counts whole seconds from the second it is in.
				resets = append(resets, out.GetStatuses()[0].GetDurationUntilReset().AsDuration(), end.Sub(got.Sent))
			}
		}
		codes = append(codes, seen)
	}
	if !time.Now().Before(end) {
		return false
	}
	const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	for n, seen := range codes {
		for i, want := range []rlsv3.RateLimitResponse_Code{ok, ok, ok, over} {
			if seen[i] != want {
				t.Errorf("%s, request %d of program %d: got %v, want %v", unit, i, n, seen[i], want)
			}
		}
		if reset, left := resets[2*n], resets[2*n+1]; length > time.Second && (reset > left+time.Second || reset < left-2*time.Second) {
			t.Errorf("%s, program %d: the reset is in %v, want the end of the clock's %s, in %v", unit, n, reset, unit, left)
		}
	}
	return true
}

// TestFixedWindowsAreThoseOfTheReference fills windows of each unit in envoyproxy/ratelimit and in
// rls in its place with rules.policy fixed. Both admit and deny the same requests of every second
// of the clock, and their minutes, hours and days end at the same time.
func TestFixedWindowsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	servers.ReferenceBinary(t)
	options := servers.ReferenceOptions{Rules: windowRules, Redis: servers.Redis(t)}
	reference := servers.StartReference(t, options)
	options.Binary, options.Env = stack.AsRatelimit(t), map[string]string{"SLIDEGATE_RULES_POLICY": "fixed"}
	ours := servers.StartReference(t, options)

	for unit, length := range map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour} {
		if left := time.Until(time.Now().Truncate(length).Add(length)); left < 5*time.Second {
			process.WaitUntil(time.Now().Add(left))
		}
		if !fillsAlike(t, unit, length, reference, ours) {
			t.Errorf("%s: four requests took longer than 5 s", unit)
		}
	}
	rounds := 0
	for give := time.Now().Add(process.Patience); rounds < 4 && time.Now().Before(give); {
		process.WaitUntil(time.Now().Truncate(time.Second).Add(time.Second))
		if fillsAlike(t, "second", time.Second, reference, ours) {
			rounds++
		}
	}
	if rounds < 4 {
		t.Errorf("only %d rounds fit into a second of the clock", rounds)
	}
}
