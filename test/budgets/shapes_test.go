package budgets

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/internal/offline/envoyconfig"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

// A call is one of ShouldRateLimit, as Envoy has sent it.
type call struct {
	stream, end, wire, sent string
	descriptors             []string // each with its cost, such as budget=tokens,api_key=k 7
}

// A recorder is a rate-limit service that admits everything, and keeps the calls.
type recorder struct {
	rlsv3.UnimplementedRateLimitServiceServer
	addr string

	mu    sync.Mutex
	calls []call
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{addr: listener.Addr().String()}
	server := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(server, r)
	healthv1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r
}

func (r *recorder) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	has, _ := metadata.FromIncomingContext(ctx)
	of := func(name string) string { return strings.Join(has.Get(name), ",") }
	one := call{stream: of("x-slidegate-stream"), end: of("x-rls-end"), wire: of("x-rls-wire"), sent: of("x-rls-sent")}
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	for _, d := range in.GetDescriptors() {
		var text []string
		for _, e := range d.GetEntries() {
			text = append(text, e.GetKey()+"="+e.GetValue())
		}
		cost := "-"
		if d.GetHitsAddend() != nil {
			cost = fmt.Sprint(d.GetHitsAddend().GetValue())
		}
		one.descriptors = append(one.descriptors, strings.Join(text, ",")+" "+cost)
		out.Statuses = append(out.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, one)
	return out, nil
}

// take returns n calls, and forgets them.
func (r *recorder) take(t *testing.T, n int) (calls []call) {
	t.Helper()
	process.Eventually(t, fmt.Sprint(n, " calls"), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.calls) < n {
			return false
		}
		calls, r.calls = r.calls, nil
		return true
	})
	return calls
}

// files are the shapes with budgets that this Envoy accepts, and their APIs.
func files(t *testing.T) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	for _, s := range envoyconfig.Shapes {
		if !strings.HasPrefix(s.Name, "budgets") || stack.EnvoyVersion(t)[1] < s.Since {
			continue
		}
		out[s.File] = []string{"openai-chat", "openai-responses", "anthropic", "gemini"}
		if s.Name == "budgets-1.36" || oneHop(s.File) {
			out[s.File] = []string{""}
		}
	}
	return out
}

// forged are headers that only calls of Envoy have. With a believed x-rls-wire every request would be free.
var forged = []string{"x-rls-end", "x-rls-wire", "x-rls-sent", "x-rls-cost", "x-slidegate-stream"}

// A request is one to a provider. It always has the headers that are forged.
type request struct {
	api, key     string
	in, out, max int    // max 0: the body has no bound
	bound        string // in place of max
	stream       bool
	header       []string
}

// new returns the request and the length of its body.
func (q request) new(ctx context.Context, t *testing.T, url string) (*http.Request, int) {
	t.Helper()
	is := apis[q.api]
	body := `{"model": "m"`
	if q.max != 0 {
		q.bound = fmt.Sprint(q.max)
	}
	if q.bound != "" {
		body += ", " + strings.Replace(is.bound, "%d", q.bound, 1)
	}
	path := is.path
	if q.stream && is.stream != "" {
		path = is.stream
	} else if q.stream {
		body += `, "stream": true`
	}
	body += "}"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if name, prefix, _ := strings.Cut(is.key, ": "); q.key != "" {
		r.Header.Set(name, prefix+q.key)
	}
	for _, name := range forged {
		r.Header.Set(name, "0")
	}
	r.Header.Set("x-in", fmt.Sprint(q.in))
	r.Header.Set("x-out", fmt.Sprint(q.out))
	for i := 0; i < len(q.header); i += 2 {
		r.Header.Set(q.header[i], q.header[i+1])
	}
	return r, len(body)
}

// send sends the request, reads the whole answer and returns its status. 0: it broke.
func (q request) send(t *testing.T, url string) (status, body int) {
	t.Helper()
	r, n := q.new(t.Context(), t, url)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, n
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, n
	}
	return resp.StatusCode, n
}

// TestShapes: each file of budgets reserves the estimate and settles the cost that the application
// has named, of each API, for answers and for streams. A cost that is not known is left out.
func TestShapes(t *testing.T) {
	for file, names := range files(t) {
		if oneHop(file) {
			continue // the recorder does not authorize
		}
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			rls, app := newRecorder(t), new(provider)
			config := "../../envoy/" + file
			envoy := edge.Envoy(t, edge.EnvoyOptions{Config: config, Upstream: stack.ServeHTTP(t, app), RLS: rls.addr, Replace: stack.PatientEnvoy(t, config)})
			money, header := file == "budgets.yaml", file == "budgets-1.36.yaml"
			for _, name := range names {
				for _, stream := range []bool{false, true} {
					q := request{api: name, key: "k1", in: 11, out: 7, max: 500, stream: stream}
					status, body := q.send(t, envoy.URL())
					calls := rls.take(t, 2)
					if status != http.StatusOK {
						t.Errorf("%+v: status %d", q, status)
						continue
					}
					input := body / 4
					if money {
						input = (body + 3) / 4
					} else if header {
						input = 0
					}
					reserved := []string{fmt.Sprintf("budget=tokens,api_key=k1 %d", 500+input)}
					settled := []string{"slidegate=end -", "budget=tokens,api_key=k1 18"}
					if money {
						reserved = append(reserved, fmt.Sprintf("budget=usd,api_key=k1 %d", 500*15+input*3))
						settled = append(settled, fmt.Sprintf("budget=usd,api_key=k1 %d", 11*3+7*15))
					}
					if f := apis[name].form; f != "" {
						reserved = slices.Insert(reserved, 0, "form="+f+" -")
					}
					if got := calls[0].descriptors; !slices.Equal(got, reserved) {
						t.Errorf("%s, stream %v: reserved %q, want %q", name, stream, got, reserved)
					}
					if got := calls[1].descriptors; !slices.Equal(got, settled) {
						t.Errorf("%s, stream %v: settled %q, want %q", name, stream, got, settled)
					}
					if a, b := calls[0], calls[1]; a.stream == "" || a.stream != b.stream || a.end != "" || b.end != "via_upstream" || b.wire == "" || b.wire == "0" || b.sent == "" || b.sent == "0" {
						t.Errorf("%s, stream %v: calls %+v", name, stream, calls)
					}
					if q.header = []string{"x-does", "reset-in-body"}; !stream || header { // the header names the cost before
						continue
					}
					q.send(t, envoy.URL())
					if got := rls.take(t, 2)[1].descriptors; !slices.Equal(got, settled[:1]) {
						t.Errorf("%s, a stream that breaks: settled %q, want %q", name, got, settled[:1])
					}
				}
			}
			unknown(t, envoy.URL(), rls, names[len(names)-1], header, money)
			if app.gotForged() {
				t.Error("the application got headers that only calls of Envoy have")
			}
		})
	}
}

// unknown has requests without a known cost, and without or with a wrong estimate.
func unknown(t *testing.T, url string, rls *recorder, api string, header, money bool) {
	t.Helper()
	for _, c := range []struct {
		request
		estimate int
		wire     bool
	}{
		{request{api: api, key: "k1", in: 1, header: []string{"x-does", "fail"}}, 4096, true},
		{request{api: api, key: "k1", in: 1, max: 7, header: []string{"x-does", "reset"}}, 7, true},
		{request{api: api, in: 1, max: -5, header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, bound: "true", header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, bound: `"500"`, header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, bound: "[1]", header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, bound: "null", header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, bound: "0.0", header: []string{"x-does", "reset"}}, 4096, true},
		{request{api: api, in: 1, max: 2_000_000_000, header: []string{"x-does", "reset"}}, 200_000, true},
	} {
		_, body := c.send(t, url)
		calls := rls.take(t, 2)
		key, estimate := c.key, c.estimate
		if key == "" {
			key = "none"
		}
		if !header {
			estimate += body / 4
		}
		settled := []string{"slidegate=end -"}
		if c.header[1] == "fail" { // an error of the provider is free
			settled = append(settled, "budget=tokens,api_key=k1 0")
			if money {
				settled = append(settled, "budget=usd,api_key=k1 0")
			}
		}
		is, cost := calls[0].descriptors[0], 0
		if n, err := fmt.Sscanf(is, "budget=tokens,api_key="+key+" %d", &cost); n != 1 || err != nil || cost-estimate > 1 || cost < estimate {
			t.Errorf("%+v: reserved %s, want %d", c.request, is, estimate)
		}
		if got := calls[1]; !slices.Equal(got.descriptors, settled) || (got.wire != "0") != c.wire {
			t.Errorf("%+v: settled %+v, want %q", c.request, got, settled)
		}
	}
}
