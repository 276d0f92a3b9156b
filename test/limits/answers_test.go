package limits

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
				names: []string{"Content-Length", "Content-Type", "Date", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Retry-After-Ms", "Server", "X-Envoy-Ratelimited", "X-Should-Retry"},
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
				Detail: "The budget of rule per-key is used up: 2 per 1h; try again in " + strconv.Itoa(retry) + " s.",
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
		s := stack.Setup{
			Rules: strings.ReplaceAll(stack.PerKey, "100", "2"), Env: settings, Upstream: stack.NewGRPCApplication(t),
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

// TestManyDescriptors proves that a request of many descriptors is limited through an Envoy whose
// failure mode is the default, which lets a request pass after an error. A client cannot make its
// request too large for its limits either.
func TestManyDescriptors(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		const few, many, copies = 49, 128, 20
		actions := func(n int, key string) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "                    - actions: [{generic_key: {descriptor_key: %s, descriptor_value: \"%d\"}}]\n", key, i)
			}
			return b.String()
		}
		first := func(route string) string {
			return "                    - actions:\n                      - generic_key: {descriptor_key: route, descriptor_value: " + route + "}\n"
		}
		big := strings.Repeat("                    - actions: [{request_headers: {header_name: x-big, descriptor_key: big}}]\n", copies)
		s := stack.Setup{
			Rules: `domain: edge
descriptors:
  - key: few
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: big
    rate_limit: {unit: day, requests_per_unit: 1000}
`,
			Env: settings,
			Change: map[string]string{
				first("search"): actions(many, "many") + first("search"),
				first("login"):  actions(few, "few") + big + first("login"),
			},
		}.Start(t)
		c := s.From("127.0.0.1")
		c.Want(429, 2, "/login", "x-big", strings.Repeat("v", 55_000)) // more than the bound of a message
		for _, path := range []string{"/search", "/login"} {
			c.Want(200, 1, path)
			c.Want(429, 2, path)
		}
		s.WantAllDecided()
	})
}

// decision is the answer of rls to one request, and the times around it.
type decision struct {
	sent, received time.Time
	status         *rlsv3.RateLimitResponse_DescriptorStatus
	header         map[string]string
}

// spend sends a request for one key with a cost.
func spend(t *testing.T, rls *edge.RLSServer, cost uint64, key string) decision {
	t.Helper()
	got, out := stack.PostJSON(t, rls.HTTP(), stack.Request(cost, "api_key="+key))
	if len(out.GetStatuses()) != 1 {
		t.Fatalf("got %d %s, want one status", got.Status, got.Body)
	}
	a := decision{got.Sent, got.Received, out.GetStatuses()[0], make(map[string]string)}
	for _, h := range out.GetResponseHeadersToAdd() {
		a.header[strings.ToLower(h.GetKey())] = h.GetValue()
	}
	return a
}

// TestRetryAfterOfSeveralCosts fills a limit of ten with a hit of one and, two seconds
// later, one of nine. A denial of a cost of one waits for the first of them, a larger
// cost for the second, in any order of requests. Both stores answer alike.
func TestRetryAfterOfSeveralCosts(t *testing.T) {
	rules := strings.ReplaceAll(stack.PerKey, "100", "10")
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		rls := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		first := spend(t, rls, 1, "k")
		process.WaitUntil(first.received.Add(2 * time.Second))
		second := spend(t, rls, 9, "k")
		for i, cost := range []uint64{1, 4, 1, 2, 10, 4, 9, 1, 4, 2} {
			frees := second
			if cost == 1 {
				frees = first
			}
			got := spend(t, rls, cost, "k")
			wait, err := strconv.Atoi(got.header["retry-after"])
			if err != nil {
				t.Fatalf("request %d, cost %d: got %v, want a denial", i, cost, got.header)
			}
			least := ceilSeconds(time.Hour - got.received.Sub(frees.sent))
			most := ceilSeconds(time.Hour - got.sent.Sub(frees.received) + 100*time.Millisecond) // a round trip, and two clocks
			if wait < least || wait > most {
				t.Errorf("request %d, cost %d: got Retry-After %d, want %d to %d", i, cost, wait, least, most)
			}
		}
	})
}

// TestResetIsWithinTheWindow has a limit that rounds its times up and one with leases.
// No reset may exceed the window, in any style.
func TestResetIsWithinTheWindow(t *testing.T) {
	const rules = `
domain: edge
descriptors:
  - {key: api_key, value: rounded, rate_limit: {name: rounded, window: 1m, requests: 20000, precision: 1s}}
  - {key: api_key, value: auto, rate_limit: {name: auto, window: 1m, requests: 20000}}
  - {key: api_key, value: leased, rate_limit: {name: leased, window: 1m, requests: 1000, lease: 1s}}
`
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		settings[stack.EnvStyles] = "ratelimit,draft03,x-ratelimit"
		rls := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		settings[stack.EnvStyles] = "x-ratelimit-epoch"
		epoch := stack.Setup{Rules: rules, Env: settings}.Serve(t)
		for _, key := range []string{"rounded", "auto", "leased"} {
			for i := range 20 {
				got := spend(t, rls, 1, key)
				_, reset, _ := strings.Cut(got.header["ratelimit"], ";t=")
				for name, value := range map[string]string{
					"ratelimit": reset, "ratelimit-reset": got.header["ratelimit-reset"], "x-ratelimit-reset": got.header["x-ratelimit-reset"],
					"duration_until_reset": strconv.FormatInt(got.status.GetDurationUntilReset().GetSeconds(), 10),
				} {
					if n, err := strconv.Atoi(value); err != nil || n < 1 || n > 60 {
						t.Errorf("%s, request %d: got %s %q, want 1 to 60", key, i, name, value)
					}
				}
				got = spend(t, epoch, 1, key)
				end, err := strconv.ParseInt(got.header["x-ratelimit-reset"], 10, 64)
				if latest := got.received.Add(time.Minute + time.Second); err != nil || end > latest.Unix() {
					t.Errorf("%s, request %d: got x-ratelimit-reset %q, want %d at most", key, i, got.header["x-ratelimit-reset"], latest.Unix())
				}
			}
		}
	})
}

// TestRetryJitter: through Envoy, 20 customers who are denied together are told different waits:
// all are true, none is longer than the share allows, and each customer is told its own again, also
// if the denial is remembered. Envoy is told the true wait.
func TestRetryJitter(t *testing.T) {
	const rules = "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: {name: per-key, window: 1h, requests: 1, retry_jitter: 50%}\n"
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		s := stack.Setup{Rules: rules, Env: settings}.Start(t)
		waits := make(map[int]bool)
		for i := range 20 {
			key := "customer-" + strconv.Itoa(i)
			begin := time.Now()
			if got := s.Get("/", "x-api-key", key); got.Status != http.StatusOK {
				t.Fatalf("%s: got %d", key, got.Status)
			}
			charged := time.Now()
			first := 0
			for again := range 4 { // the store forgets nothing for an hour, so the state is the same
				got := s.Get("/", "x-api-key", key)
				least, most := ceilSeconds(time.Hour-got.Received.Sub(begin)), ceilSeconds((time.Hour-got.Sent.Sub(charged)+100*time.Millisecond)*3/2)
				wait, err := strconv.Atoi(got.Header.Get("retry-after"))
				if err != nil || got.Status != http.StatusTooManyRequests || wait < least || wait > most {
					t.Fatalf("%s: got %d with Retry-After %q, want %d to %d", key, got.Status, got.Header.Get("retry-after"), least, most)
				}
				if want := `"per-key";r=0;t=` + strconv.Itoa(wait); got.Header.Get("ratelimit") != want || !strings.Contains(got.Body, `"retry_after":`+strconv.Itoa(wait)+",") {
					t.Errorf("%s: Retry-After %d, RateLimit %s, body %s", key, wait, got.Header.Get("ratelimit"), got.Body)
				}
				if first = max(first, wait); again > 0 && (wait > first || first-wait > 2*ceilSeconds(got.Received.Sub(begin))) {
					t.Errorf("%s: told %d s and then %d s", key, first, wait)
				}
			}
			waits[first] = true
			asked := spend(t, s.RLS, 1, key)
			if reset := asked.status.GetDurationUntilReset().GetSeconds(); reset > 3600 {
				t.Errorf("%s: Envoy is told a reset in %d s", key, reset)
			}
		}
		if len(waits) < 15 {
			t.Errorf("20 customers were told %d different waits: %v", len(waits), waits)
		}
		s.WantAllDecided()
	})
}
