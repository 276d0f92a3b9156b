package limits

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/stack"
)

const twoLimits = `
domain: edge
descriptors:
  - {key: api_key, rate_limit: {name: per-key, by_tier: {free: {window: 1h, requests: 2}, starter: {window: 1h, requests: 3000}}}}
  - {key: remote_address, rate_limit: {name: per-address, window: 1d, requests: 50000}}
`

// logged is the entry of the access log about a decision.
type logged struct {
	Status              float64
	Flags, Details      string
	Rule, Tier, Subject any
	Limit, Remaining    any
	HasRetryAfter       bool
}

// TestEveryValueOfAnAnswer compares everything that a client and the access log get
// from an allowed request, the last allowed one, and a denied one.
func TestEveryValueOfAnAnswer(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: twoLimits, Tiers: stack.TiersOf("free"), Env: settings}.Start(t)
		c := s.From("127.0.0.1")
		const policies = `"per-key";q=2;w=3600, "per-address";q=50000;w=86400`
		// The time that remains is an hour, less what has passed since the first
		// request. A minute of that is far more than three requests take.
		almostAnHour := func(what, text string) int {
			t.Helper()
			n, err := strconv.Atoi(text)
			if err != nil || n <= 3540 || n > 3600 {
				t.Errorf("%s: got %q, want 3541 to 3600", what, text)
			}
			return n
		}
		for _, tt := range []struct {
			name, path string
			status     int
			rateLimit  string // without the time
			names      []string
			log        logged
		}{
			{
				name: "allowed", path: "/first", status: 200, rateLimit: `"per-key";r=1;t=`,
				names: []string{"Content-Length", "Content-Type", "Date", "Ratelimit", "Ratelimit-Policy", "Server", "X-Application", "X-Envoy-Upstream-Service-Time"},
				log:   logged{200, "-", "via_upstream", "per-key", "free", "acme", 2.0, 1.0, false},
			},
			{
				name: "the last one", path: "/second", status: 200, rateLimit: `"per-key";r=0;t=`,
				names: []string{"Content-Length", "Content-Type", "Date", "Ratelimit", "Ratelimit-Policy", "Server", "X-Application", "X-Envoy-Upstream-Service-Time"},
				log:   logged{200, "-", "via_upstream", "per-key", "free", "acme", 2.0, 0.0, false},
			},
			{
				name: "denied", path: "/third", status: 429, rateLimit: `"per-key";r=0;t=`,
				names: []string{"Content-Length", "Content-Type", "Date", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Server", "X-Envoy-Ratelimited"},
				log:   logged{429, "RL", "request_rate_limited", "per-key", "free", "acme", 2.0, 0.0, true},
			},
		} {
			got := c.Get(tt.path+"?key=in-the-query", "x-api-key", "acme-old-key")
			if got.Status != tt.status {
				t.Fatalf("%s: got %d, want %d", tt.name, got.Status, tt.status)
			}
			if diff := cmp.Diff(tt.names, slices.Sorted(maps.Keys(got.Header))); diff != "" {
				t.Errorf("%s: names of header fields (-want +got):\n%s", tt.name, diff)
			}
			for name, values := range got.Header {
				if len(values) != 1 {
					t.Errorf("%s: %s: got %d fields %q, want one", tt.name, name, len(values), values)
				}
			}
			if p := got.Header.Get("RateLimit-Policy"); p != policies {
				t.Errorf("%s: RateLimit-Policy: got %s, want %s", tt.name, p, policies)
			}
			rest, ok := strings.CutPrefix(got.Header.Get("RateLimit"), tt.rateLimit)
			if !ok {
				t.Errorf("%s: RateLimit: got %s, want %s…", tt.name, got.Header.Get("RateLimit"), tt.rateLimit)
			}
			reset := almostAnHour(tt.name+": t", rest)

			entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["path"] == tt.path })
			if err != nil {
				t.Fatal(err)
			}
			log := logged{
				Status: entry["status"].(float64), Flags: entry["flags"].(string), Details: entry["details"].(string),
				Rule: entry["rule"], Tier: entry["tier"], Subject: entry["subject"],
				Limit: entry["limit"], Remaining: entry["remaining"], HasRetryAfter: entry["retry_after"] != nil,
			}
			if diff := cmp.Diff(tt.log, log); diff != "" {
				t.Errorf("%s: access log (-want +got):\n%s", tt.name, diff)
			}

			if tt.status == http.StatusOK {
				want := []string{stack.AppContentType, strconv.Itoa(len(stack.AppBody)), stack.AppBody}
				if diff := cmp.Diff(want, []string{got.Header.Get("Content-Type"), got.Header.Get("Content-Length"), got.Body}); diff != "" {
					t.Errorf("%s: what the application answered (-want +got):\n%s", tt.name, diff)
				}
				continue
			}
			retry := almostAnHour(tt.name+": Retry-After", got.Header.Get("Retry-After"))
			if reset != retry || entry["retry_after"] != float64(retry) {
				t.Errorf("%s: got Retry-After %d, t=%d, and %v in the access log, want the same", tt.name, retry, reset, entry["retry_after"])
			}
			want := stack.Problem{
				Type:  "https://iana.org/assignments/http-problem-types#quota-exceeded",
				Title: "Too Many Requests", Status: 429,
				Detail: "No room under rule per-key: 2 per 1h; try again in " + strconv.Itoa(retry) + " s.",
				Rule:   "per-key", Limit: 2, Window: 3600, RetryAfter: retry, Violated: []string{"per-key"},
			}
			if diff := cmp.Diff(want, stack.ProblemOf(t, got)); diff != "" {
				t.Errorf("%s: body (-want +got):\n%s", tt.name, diff)
			}
			for name, want := range map[string]string{"Content-Type": "application/problem+json", "X-Envoy-Ratelimited": "true"} {
				if v := got.Header.Get(name); v != want {
					t.Errorf("%s: %s: got %q, want %q", tt.name, name, v, want)
				}
			}
		}
		for name, want := range map[string]uint64{"ok": 2, "over_limit": 1, "error": 0} {
			if n := s.Stat("cluster.upstream.ratelimit." + name); n != want {
				t.Errorf("Envoy's counter %s: got %d, want %d", name, n, want)
			}
		}
	})
}

// TestHeaderStyles compares the header fields of each style on an allowed and on a
// denied request. The store does not change them.
func TestHeaderStyles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		styles string
		// want are the fields, with TIME for the seconds that remain and EPOCH for the
		// time when they are over.
		allowed, denied map[string]string
	}{
		{
			"draft03",
			map[string]string{"Ratelimit-Limit": "1, 1;w=3600", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "TIME"},
			map[string]string{"Ratelimit-Limit": "1, 1;w=3600", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "TIME", "Retry-After": "TIME"},
		},
		{
			"x-ratelimit",
			map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "TIME"},
			map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "TIME", "Retry-After": "TIME"},
		},
		{
			"ratelimit,x-ratelimit-epoch",
			map[string]string{
				"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "EPOCH",
				"Ratelimit": `"per-key";r=0;t=TIME`, "Ratelimit-Policy": `"per-key";q=1;w=3600`,
			},
			map[string]string{
				"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "EPOCH", "Retry-After": "TIME",
				"Ratelimit": `"per-key";r=0;t=TIME`, "Ratelimit-Policy": `"per-key";q=1;w=3600`,
			},
		},
		{"", map[string]string{}, map[string]string{"Retry-After": "TIME"}},
	} {
		t.Run("styles="+tt.styles, func(t *testing.T) {
			t.Parallel()
			s := stack.Setup{Rules: strings.ReplaceAll(stack.PerKey, "100", "1"), Env: map[string]string{stack.EnvStyles: tt.styles}}.Start(t)
			began := time.Now()
			for _, want := range []map[string]string{tt.allowed, tt.denied} {
				a := s.Get("/", "x-api-key", "k")
				got := make(map[string]string)
				for name := range a.Header {
					if strings.Contains(name, "Ratelimit") && name != "X-Envoy-Ratelimited" || name == "Retry-After" {
						got[name] = masked(a.Header.Get(name), began.Add(time.Hour))
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("on a %d (-want +got):\n%s", a.Status, diff)
				}
			}
		})
	}
}

// masked replaces a correct time at the end of a value. TIME stands for almost an hour in
// seconds, and EPOCH for a Unix time near end.
func masked(value string, end time.Time) string {
	digits := strings.TrimLeft(value[strings.LastIndex(value, "=")+1:], " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	prefix := strings.TrimSuffix(value, digits)
	switch {
	case err != nil || strings.HasSuffix(prefix, "w="):
		return value
	case n > 3540 && n <= 3600:
		return prefix + "TIME"
	case n >= end.Unix() && n <= end.Unix()+60:
		return prefix + "EPOCH"
	default:
		return value
	}
}

// TestALimitedGRPCCall has a gRPC client, and a gRPC server as the application.
func TestALimitedGRPCCall(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		app := grpc.NewServer()
		healthv1.RegisterHealthServer(app, health.NewServer())
		done := make(chan error, 1)
		go func() { done <- app.Serve(listener) }()
		t.Cleanup(func() {
			app.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		s := stack.Setup{
			Rules: strings.ReplaceAll(stack.PerKey, "100", "2"), Env: settings, Upstream: listener.Addr().String(),
		}.Start(t)
		client := healthv1.NewHealthClient(stack.Connect(t, s.Envoy.Addr()))
		call := func() (header metadata.MD, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", "k")
			var trailer metadata.MD
			_, err = client.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
			return metadata.Join(header, trailer), err
		}
		for i := range 2 {
			header, err := call()
			if err != nil {
				t.Fatalf("call %d: %v", i+1, err)
			}
			if want := `"per-key";r=` + strconv.Itoa(1-i) + ";"; len(header["ratelimit"]) != 1 || !strings.HasPrefix(header["ratelimit"][0], want) {
				t.Errorf("call %d: ratelimit: got %q, want %s…", i+1, header["ratelimit"], want)
			}
		}
		header, err := call()
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("call 3 of 2: got %v, want RESOURCE_EXHAUSTED", err)
		}
		p := stack.ProblemOf(t, stack.Answer{Body: status.Convert(err).Message()})
		if p.Rule != "per-key" || p.Limit != 2 {
			t.Errorf("message of the status: got %+v, want the limit of 2 of rule per-key", p)
		}
		for name, want := range map[string]string{
			"retry-after": strconv.Itoa(p.RetryAfter), "x-envoy-ratelimited": "true", "content-type": "application/grpc",
			"ratelimit": `"per-key";r=0;t=` + strconv.Itoa(p.RetryAfter), "ratelimit-policy": `"per-key";q=2;w=3600`,
		} {
			if got := header.Get(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		entry, err := s.Envoy.WaitAccessLog(func(e edge.AccessLogEntry) bool { return e["flags"] == "RL" })
		if err != nil || entry["grpc_status"] != 8.0 {
			t.Errorf("access log: got grpc_status %v, %v, want 8", entry["grpc_status"], err)
		}
		s.WantAllDecided()
	})
}
