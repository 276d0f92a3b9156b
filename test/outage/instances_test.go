package outage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
	"github.com/slidegate/slidegate/test/tree"
)

const onePerRoute = `
domain: edge
descriptors:
  - key: route
    descriptors:
      - {key: remote_address, rate_limit: {name: per-route, window: 1h, requests: 1}}
`

// A fleet is instances that know each other by their Redis.
type fleet struct {
	t     *testing.T
	redis *redis.Client
	all   []*edge.RLSServer
}

// start adds an instance with a file of the secret, or without one. It denies one request of a route.
func (f *fleet) start(route, secret string) *edge.RLSServer {
	f.t.Helper()
	env := stack.With(stack.OnRedis(f.redis.Options().Addr), map[string]string{stack.EnvAdminAddress: "0.0.0.0:0"})
	if secret != "" {
		env["SLIDEGATE_ADMIN_PEERS_KEY_FILE"] = filepath.Join(f.t.TempDir(), "peers")
		tree.Write(f.t, env["SLIDEGATE_ADMIN_PEERS_KEY_FILE"], secret+"\n")
	}
	rls := edge.RLS(f.t, edge.RLSOptions{Rules: onePerRoute, Env: env})
	f.t.Cleanup(func() { _ = rls.Signal(syscall.SIGCONT) })
	limit := stack.Limiter(f.t, rls)
	for range 2 {
		if _, err := limit("route=" + route + ",remote_address=203.0.113.7"); err != nil {
			f.t.Fatal(err)
		}
	}
	f.all = append(f.all, rls)
	return rls
}

// name is what the others call an instance.
func name(rls *edge.RLSServer) string { return "127.0.0.1:" + port(rls) }

func port(rls *edge.RLSServer) string { return rls.Admin()[strings.LastIndex(rls.Admin(), ":")+1:] }

// merged is an answer of all instances.
type merged struct {
	Denials   []struct{ Instance, Route string }
	Instances []struct {
		Name, Error string
		Answered    bool
	}
}

// ask returns "instance route" of each denial that the first instance shows, the newest first, and the
// errors of the instances, by their names. An instance that answered has none.
func (f *fleet) ask() (denials []string, instances map[string]string) {
	f.t.Helper()
	var m merged
	if err := json.Unmarshal([]byte(stack.Page(f.t, "http://"+name(f.all[0])+"/v1/denials?instances=all")), &m); err != nil {
		f.t.Fatal(err)
	}
	instances = make(map[string]string)
	for _, d := range m.Denials {
		denials = append(denials, d.Instance+" "+d.Route)
	}
	for _, i := range m.Instances {
		instances[i.Name] = i.Error
		if i.Answered != (i.Error == "") {
			f.t.Errorf("%s: answered %v, and the error is %q", i.Name, i.Answered, i.Error)
		}
	}
	return denials, instances
}

// until waits until the first instance knows the others that a function wants.
func (f *fleet) until(what string, as func(instances map[string]string) bool) (denials []string, instances map[string]string) {
	f.t.Helper()
	process.Eventually(f.t, what, func() bool {
		denials, instances = f.ask()
		return as(instances)
	})
	return denials, instances
}

// command runs a command of rls that asks the first instance, or that in args.
func (f *fleet) command(args ...string) (code int, out, fails string) {
	f.t.Helper()
	if !slices.Contains(args, "--admin") {
		args = append(args, "--admin", name(f.all[0]))
	}
	o := edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN": edge.ActToken}}
	cmd, err := o.Command(f.t.Context(), args...)
	if err != nil {
		f.t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var ended *exec.ExitError
	if err = cmd.Run(); errors.As(err, &ended) {
		return ended.ExitCode(), stdout.String(), stderr.String()
	} else if err != nil {
		f.t.Fatal(err)
	}
	return 0, stdout.String(), stderr.String()
}

const peersSecret = "0123456789abcdefghijklmnopqrstuv"

// TestInstances starts instances that know each other. One answers for all. Then one stops, one has no
// secret, one has another secret, and an attacker adds an address of its own.
func TestInstances(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t, redis: redis.NewClient(&redis.Options{Addr: servers.Redis(t)})}
	defer f.redis.Close()
	for _, route := range []string{"a", "b", "c"} {
		f.start(route, peersSecret)
	}
	denials, instances := f.until("three instances", func(of map[string]string) bool { return len(of) == 3 })
	var want []string
	for i, route := range []string{"a", "b", "c"} {
		want = append(want, name(f.all[i])+" "+route)
		if why := instances[name(f.all[i])]; why != "" {
			t.Errorf("%s: %s", name(f.all[i]), why)
		}
	}
	if slices.Reverse(want); !slices.Equal(denials, want) {
		t.Errorf("denials: got %v, want %v", denials, want)
	}
	if code, out, fails := f.command("denials"); code != 0 || strings.Count(out, "per-route") != 3 || strings.Count(out, "127.0.0.1:") != 3 || fails != "" {
		t.Errorf("rls denials: got exit code %d and\n%s%s", code, out, fails)
	}
	if code, out, fails := f.command("top", "--by", "rule"); code != 0 || !slices.Contains(strings.Fields(out), "3") || fails != "" {
		t.Errorf("rls top: got exit code %d and\n%s%s", code, out, fails)
	}
	page := func(path string) string { return stack.Page(t, "http://"+name(f.all[0])+path) }
	if html := page("/denials"); strings.Contains(html, "A part is missing") || !strings.Contains(html, "from 3 instances") || strings.Count(html, "The instance that denied it") != 3 {
		t.Errorf("the page of denials:\n%s", html)
	}
	if html := page("/subject?address=203.0.113.7"); !strings.Contains(html, "from 3 instances") || strings.Count(html, "The instance that denied it") != 3 {
		t.Errorf("the page of the address:\n%s", html)
	}

	if err := f.all[2].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := name(f.all[2])
	code, out, fails := f.command("denials")
	if code != 3 || strings.Count(out, "per-route") != 2 || !strings.Contains(fails, "from 2 of 3 instances; "+stopped+" did not answer") || !strings.Contains(fails, "no answer within 1s") {
		t.Errorf("rls denials without one: got exit code %d and\n%s%s", code, out, fails)
	}
	if code, _, fails := f.command("top"); code != 3 || !strings.Contains(fails, "from 2 of 3 instances; "+stopped) {
		t.Errorf("rls top without one: got exit code %d and\n%s", code, fails)
	}
	// Each waits a second for it. After some seconds the others forget it.
	var pages sync.WaitGroup
	for _, path := range []string{"/?format=html", "/denials", "/top", "/audit", "/subject?address=203.0.113.7", "/rules?rule=per-route"} {
		pages.Go(func() {
			if html := page(path); !strings.Contains(html, "A part is missing") || !strings.Contains(html, stopped) {
				t.Errorf("%s does not say that %s is missing:\n%s", path, stopped, html)
			}
		})
	}
	pages.Wait()
	if err := f.all[2].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	// One without the secret, which still counts, and one with another.
	plain, other := f.start("d", ""), f.start("e", strings.ToUpper(peersSecret))
	denials, _ = f.until("five instances", func(of map[string]string) bool {
		return len(of) == 5 && of["1 instance without an address"] != "" && of[name(other)] == "it does not prove that it has the secret of admin.peers_key_file" && of[stopped] == ""
	})
	if len(denials) != 3 {
		t.Errorf("denials without the secret: %v", denials)
	}
	stack.WaitInstances(t, plain, "", 5)
	for _, command := range []string{"denials", "top"} {
		code, out, fails := f.command(command, "--admin", name(plain))
		if code != 0 || strings.Contains(out, "instances") || !strings.Contains(fails, "Only one of 5 instances was asked") || !strings.Contains(fails, "admin.peers_key_file") {
			t.Errorf("rls %s of one without the secret: got exit code %d and\n%s%s", command, code, out, fails)
		}
	}
	members := f.redis.ZRange(t.Context(), "slidegate:instances", 0, -1).Val()
	published := 0
	for _, member := range members {
		if strings.Contains(member, " ") {
			published++
		}
		if strings.Contains(member, port(plain)) {
			t.Errorf("the instance without the secret publishes %s", member)
		}
	}
	if published != 4 {
		t.Errorf("%d of the instances publish an address, want 4: %v", published, members)
	}
}

// TestHostileEntry has entries that an attacker has written: one with its own address, one that is too
// long, and one that is no address.
func TestHostileEntry(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t, redis: redis.NewClient(&redis.Options{Addr: servers.Redis(t)})}
	defer f.redis.Close()
	f.start("a", peersSecret)
	var mu sync.Mutex
	var received bytes.Buffer
	hostile := strings.TrimPrefix(stack.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = r.Write(&received)
		fmt.Fprint(w, `{"denials": [{"rule": "planted"}], "instances": [{"name": "planted"}]}`)
	})), "http://")
	now := float64(f.redis.Time(t.Context()).Val().Unix())
	for _, member := range []string{"0000000000000000 " + hostile, "1111111111111111 " + strings.Repeat("x", 100_000), "2222222222222222 user:password@" + hostile} {
		if err := f.redis.ZAdd(t.Context(), "slidegate:instances", redis.Z{Score: now + 8, Member: member}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	denials, instances := f.until("the hostile entry", func(of map[string]string) bool { return of[hostile] != "" })
	if len(denials) != 1 || len(instances) != 2 || strings.Contains(fmt.Sprint(instances), "planted") {
		t.Errorf("shown: %v, %v", denials, instances)
	}
	html := stack.Page(t, "http://"+name(f.all[0])+"/denials?rule=per-route")
	if strings.Contains(html, "planted") || !strings.Contains(html, hostile) {
		t.Errorf("the page of denials:\n%s", html)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(received.String(), "POST /v1/peers") {
		t.Errorf("the hostile address was not asked: %q", received.String())
	}
	for _, text := range []string{edge.ActToken, "Authorization", "Cookie", peersSecret, "per-route", "denials"} {
		if strings.Contains(received.String(), text) {
			t.Errorf("the hostile address has received %q", text)
		}
	}
	lines := 0
	for _, line := range f.all[0].Logs() {
		if text := fmt.Sprint(line["msg"]); strings.Contains(text, "has no valid address") {
			lines++
		}
		if strings.Contains(fmt.Sprint(line), peersSecret) {
			t.Errorf("the log has the secret: %v", line)
		}
	}
	if lines != 1 {
		t.Errorf("%s lines about malformed entries, want 1", strconv.Itoa(lines))
	}
}
