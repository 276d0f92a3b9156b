package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// wantCode sends one request.
func wantCode(t *testing.T, rls *edge.RLSServer, descriptor string, want rlsv3.RateLimitResponse_Code) {
	t.Helper()
	out, err := stack.Limiter(t, rls)(descriptor)
	if err != nil || out.GetOverallCode() != want {
		t.Errorf("%s: got %v, error %v, want %v", descriptor, out.GetOverallCode(), err, want)
	}
}

// restart stops rls and starts it again.
func restart(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	if code, err := rls.Stop(); code != 0 || err != nil {
		t.Fatalf("exit code: got %d, %v, want 0\n%s", code, err, rls.Output())
	}
	if err := rls.Start(); err != nil {
		t.Fatal(err)
	}
}

// TestRestartKeepsLogs uses up a limit and restarts rls. With a snapshot the limit
// stays used up. A crash loses what was used since the last shutdown. A torn file is
// put aside with one log line.
func TestRestartKeepsLogs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "logs")
	rls := stack.Setup{Rules: stack.PerKey, Env: map[string]string{stack.EnvSnapshot: file}}.Serve(t)
	ask := stack.Limiter(t, rls)
	for range 100 {
		if _, err := ask("api_key=secret-1"); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, rls, "api_key=secret-1", rlsv3.RateLimitResponse_OVER_LIMIT)
	for range 2 {
		restart(t, rls)
		wantCode(t, rls, "api_key=secret-1", rlsv3.RateLimitResponse_OVER_LIMIT)
	}

	snapshot, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(snapshot, []byte("secret-1")) {
		t.Error("the snapshot holds a plain API key")
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode of the snapshot: got %v, error %v, want 0600", info.Mode(), err)
	}

	wantCode(t, rls, "api_key=secret-2", rlsv3.RateLimitResponse_OK)
	rls.Kill()
	if err := rls.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := stack.Limiter(t, rls)("api_key=secret-2")
	if err != nil || stack.Remaining(out) != 99 {
		t.Errorf("a log that a crash has lost: got %v, error %v, want 99 remaining", out, err)
	}
	wantCode(t, rls, "api_key=secret-1", rlsv3.RateLimitResponse_OVER_LIMIT)

	if code, err := rls.Stop(); code != 0 || err != nil {
		t.Fatalf("exit code: got %d, %v, want 0", code, err)
	}
	if err := os.Truncate(file, 100); err != nil {
		t.Fatal(err)
	}
	if err := rls.Start(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, rls, "api_key=secret-1", rlsv3.RateLimitResponse_OK)
	var refusals []string
	for _, line := range rls.Logs() {
		if line["level"] == "error" {
			refusals = append(refusals, line["msg"].(string)+" "+line["file"].(string)+" "+line["aside"].(string))
		}
	}
	if len(refusals) != 1 || !strings.Contains(refusals[0], file+".bad") || !strings.Contains(refusals[0], "refused") {
		t.Errorf("error lines: got %q, want one that names the file", refusals)
	}
	if info, err := os.Stat(file + ".bad"); err != nil || info.Size() != 100 {
		t.Errorf("the torn file: got %v, error %v, want it put aside", info, err)
	}
	restart(t, rls)
	out, err = stack.Limiter(t, rls)("api_key=secret-1")
	if err != nil || stack.Remaining(out) != 98 {
		t.Errorf("after the next restart: got %v, error %v, want 98 remaining", out, err)
	}
}

// TestRestartKeepsHistory stops rls in the minute of a denial. The next process knows the denial, in Redis
// of each topology and beside the snapshot.
func TestRestartKeepsHistory(t *testing.T) {
	keeps := func(t *testing.T, settings map[string]string) {
		rls := stack.Setup{Rules: stack.PerKey, Env: settings}.Serve(t)
		ask := stack.Limiter(t, rls)
		for range 103 {
			if _, err := ask("api_key=secret-1"); err != nil {
				t.Fatal(err)
			}
		}
		restart(t, rls)
		var got history.History
		if err := json.Unmarshal([]byte(stack.Page(t, rls.Admin()+"/v1/history")), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Rules) != 1 || len(got.Days) != 1 {
			t.Fatalf("got %+v, want a rule and a day", got)
		}
		hour, who := got.Rules[0].Hours[0], got.Days[0].Subjects[0]
		if hour.Decisions != 103 || hour.Denials != 3 || who.Count != 3 || !strings.HasPrefix(who.Name, "key ") && who.Digest == "" {
			t.Errorf("got %+v and %+v, want 3 denials of 103 decisions", hour, who)
		}
		for _, page := range []string{"/rules?rule=" + got.Rules[0].Rule, "/subject?digest=" + who.Digest} {
			if text := stack.Page(t, rls.Admin()+page); !strings.Contains(text, ": 3 denied") {
				t.Errorf("%s has no chart of 3 denials", page)
			}
		}
	}
	t.Run("snapshot", func(t *testing.T) {
		t.Parallel()
		keeps(t, map[string]string{stack.EnvSnapshot: filepath.Join(t.TempDir(), "logs")})
	})
	t.Run("redis", func(t *testing.T) { stack.EachTopology(t, keeps) })
}

// TestRestartForgets proves that rls keeps nothing without the setting.
func TestRestartForgets(t *testing.T) {
	t.Parallel()
	rls := stack.Setup{Rules: stack.PerKey}.Serve(t)
	wantCode(t, rls, "api_key=k", rlsv3.RateLimitResponse_OK)
	restart(t, rls)
	out, err := stack.Limiter(t, rls)("api_key=k")
	if err != nil || stack.Remaining(out) != 99 {
		t.Errorf("got %v, error %v, want 99 remaining", out, err)
	}
}

// TestMemoryIsBounded sends made-up keys. The store keeps its bound and reports
// evictions. A customer with more use than these keys keeps its log.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	rls := stack.Setup{Rules: stack.PerKey, Env: map[string]string{"SLIDEGATE_STORE_MEMORY_MAX_BYTES": "1048576"}}.Serve(t)
	ask := stack.Limiter(t, rls)
	for range 50 {
		if _, err := ask("api_key=customer"); err != nil {
			t.Fatal(err)
		}
	}
	const keys = 6000
	process.Concurrently(t, 8, func(worker int) error {
		for i := worker; i < keys; i += 8 {
			if _, err := ask(fmt.Sprint("api_key=", i, strings.Repeat("x", i%1000))); err != nil {
				return err
			}
		}
		return nil
	})
	out, err := ask("api_key=customer")
	if err != nil || stack.Remaining(out) != 49 {
		t.Errorf("the customer: got %v, error %v, want 49 remaining", out, err)
	}
	held, evicted := stack.Number(t, rls, "slidegate_store_memory_keys"), stack.Number(t, rls, "slidegate_store_memory_evicted_total")
	if held > 1<<20/256 || held < 1000 || held+evicted != keys+1 {
		t.Errorf("%d logs are held and %d evicted, of %d", held, evicted, keys+1)
	}
	if n := stack.Number(t, rls, "slidegate_store_memory_bytes"); n > 1<<20 {
		t.Errorf("%d bytes, want 1 MiB at most", n)
	}
	if n := stack.Number(t, rls, "slidegate_store_memory_refused_total"); n != 0 {
		t.Errorf("%d calls were refused, want none", n)
	}
}
