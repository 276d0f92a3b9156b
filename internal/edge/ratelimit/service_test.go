package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// newService returns a service with three rules. The tier free has 3 per 10 s for an API key,
// and the login route 2 per minute. The third rule has a very large limit.
func newService(t testing.TB, store window.Store) *testService {
	t.Helper()
	limit := func(hits uint64, w time.Duration) rules.Terms {
		return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: w}}}}
	}
	s, _ := setup{store: store, rules: []rules.Rule{
		{Name: "per-key", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, ByTier: map[string]rules.Terms{"free": limit(3, 10*time.Second), "pro": {Unlimited: true}}},
		{Name: "login", Path: []descriptors.Node{{Key: "route", Value: "login"}}, Terms: limit(2, time.Minute)},
		{Name: "huge", Path: []descriptors.Node{{Key: "huge", AnyValue: true}}, Terms: limit(math.MaxUint32-1, 90*time.Second)},
	}}.serve(t)
	return s
}

// fromJSON reads a RateLimitRequest from protobuf JSON.
func fromJSON(t testing.TB, text string) *rlsv3.RateLimitRequest {
	t.Helper()
	m := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

const byKey = `{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"demo-free"}]}]}`

func TestUnitOf(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		w          time.Duration
		unit       rlsv3.RateLimitResponse_RateLimit_Unit
		multiplier uint32
	}{
		{time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND, 1},
		{90 * time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND, 90},
		{10 * time.Minute, rlsv3.RateLimitResponse_RateLimit_MINUTE, 10},
		{4 * time.Hour, rlsv3.RateLimitResponse_RateLimit_HOUR, 4},
		{day, rlsv3.RateLimitResponse_RateLimit_DAY, 1},
		{7 * day, rlsv3.RateLimitResponse_RateLimit_WEEK, 1},
		{30 * day, rlsv3.RateLimitResponse_RateLimit_MONTH, 1},
		{365 * day, rlsv3.RateLimitResponse_RateLimit_YEAR, 1},
		{400 * day, rlsv3.RateLimitResponse_RateLimit_DAY, 400},
		{1500 * time.Millisecond, rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1},
	}
	for _, tt := range tests {
		unit, multiplier := UnitOf(tt.w)
		if unit != tt.unit || multiplier != tt.multiplier {
			t.Errorf("UnitOf(%v) = %v x %d, want %v x %d", tt.w, unit, multiplier, tt.unit, tt.multiplier)
		}
	}
}

// overrideOf returns the override that the service reads.
func overrideOf(t testing.TB, o *ratelimitcommonv3.RateLimitDescriptor_RateLimitOverride) *override {
	t.Helper()
	m, err := unmarshal(t, encode(t, ask(&ratelimitcommonv3.RateLimitDescriptor{Limit: o})))
	if err != nil {
		t.Fatal(err)
	}
	return &m.descriptors[0].limit
}

func TestBadRequests(t *testing.T) {
	s := newService(t, nil)
	for name, in := range map[string]*rlsv3.RateLimitRequest{
		"no domain":      fromJSON(t, `{"descriptors":[{}]}`),
		"no descriptors": fromJSON(t, `{"domain":"edge"}`),
		"nothing":        {},
	} {
		if _, err := s.exchange(t.Context(), in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: error = %v, want INVALID_ARGUMENT", name, err)
		}
	}
}

// TestBeyondBounds proves that a request beyond a bound is an answer in both forms, OVER_LIMIT here:
// Envoy lets a request pass that gets an error.
func TestBeyondBounds(t *testing.T) {
	one := func(text string, n int) string {
		return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
	}
	const limited = `{"entries":[{"key":"k","value":"v"}],"limit":{"requests_per_unit":5,"unit":"MINUTE"}}`
	for _, reference := range []bool{false, true} {
		s, meters := setup{rules: []rules.Rule{rule("free", "free", 1, time.Minute)}, reference: reference}.serve(t)
		for _, tt := range []struct{ name, descriptors string }{
			{"descriptors", one(`{}`, maxDescriptors+1)},
			{"entries", `{"entries":[` + one(`{"key":"k"}`, maxEntries+1) + `]}`},
			{"limits", one(limited, window.MaxChecks+1)},
		} {
			out, err := s.exchange(t.Context(), fromJSON(t, `{"domain":"edge","descriptors":[`+tt.descriptors+`]}`))
			if err != nil || out.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
				t.Errorf("too many %s, reference %t: %v, %v; want OVER_LIMIT", tt.name, reference, out.GetOverallCode(), err)
			}
			if body := string(out.GetRawBody()); !reference && !strings.Contains(body, "too large for its limits") {
				t.Errorf("too many %s: body %s", tt.name, body)
			}
			for _, h := range out.GetResponseHeadersToAdd() {
				if h.GetKey() == "retry-after" {
					t.Errorf("too many %s: %s: %s, but no wait helps", tt.name, h.GetKey(), h.GetValue())
				}
			}
		}
		if got := meters.counts[fmt.Sprintf("degraded by %d", rules.StoreErrorDeny)]; got != 3 {
			t.Errorf("%d degraded answers, want 3", got)
		}
	}
}

func TestNumbersSaturate(t *testing.T) {
	s := newService(t, nil)
	got, err := s.exchange(t.Context(), fromJSON(t, `{"domain":"edge","descriptors":[{"entries":[{"key":"huge","value":"1"}],"hitsAddend":"0"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	st := got.GetStatuses()[0]
	if st.GetLimitRemaining() != math.MaxUint32-1 || st.GetCurrentLimit().GetRequestsPerUnit() != math.MaxUint32-1 {
		t.Errorf("status = %v, want the largest limit", st)
	}
	if saturate(math.MaxUint64) != math.MaxUint32 {
		t.Error("a larger number does not saturate")
	}
}

func TestStoreErrors(t *testing.T) {
	for err, want := range map[error]codes.Code{
		errors.New("dial tcp 10.0.0.1:6379: refused"): codes.Unavailable,
		context.DeadlineExceeded:                      codes.Unavailable,
		window.ErrBadCheck:                            codes.Internal,
	} {
		out, got := newService(t, adaptertest.FailingStore{Err: err}).exchange(t.Context(), fromJSON(t, byKey))
		if out != nil || status.Code(got) != want {
			t.Errorf("store error %v: answer %v, %v, want %v", err, out, got, want)
		}
		if strings.Contains(status.Convert(got).Message(), "10.0.0.1") {
			t.Errorf("the address of the store shows in %v", got)
		}
	}
}

func TestJSON(t *testing.T) {
	s := newService(t, nil)
	h := http.HandlerFunc(s.ServeJSON)
	post := func(method, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/json", strings.NewReader(body)))
		return w
	}
	for range 3 {
		if w := post(http.MethodPost, byKey); w.Code != http.StatusOK || w.Header().Get("ratelimit") == "" {
			t.Fatalf("within the limit: %d %v, want 200 with headers", w.Code, w.Header())
		}
	}
	w := post(http.MethodPost, byKey)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("retry-after") != "10" {
		t.Errorf("above the limit: %d, retry-after %q, want 429 and 10", w.Code, w.Header().Get("retry-after"))
	}
	if got := w.Header().Values("content-type"); len(got) != 1 || got[0] != "application/json" {
		t.Errorf("content-type = %q, want application/json alone", got)
	}
	out := new(rlsv3.RateLimitResponse)
	if err := protojson.Unmarshal(w.Body.Bytes(), out); err != nil || out.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("body = %s (%v), want a RateLimitResponse", w.Body, err)
	}
	for name, tt := range map[string]struct {
		method, body string
		want         int
	}{
		"GET":            {http.MethodGet, "", http.StatusMethodNotAllowed},
		"not JSON":       {http.MethodPost, "{", http.StatusBadRequest},
		"unknown field":  {http.MethodPost, `{"domian":"edge"}`, http.StatusBadRequest},
		"no descriptors": {http.MethodPost, `{"domain":"edge"}`, http.StatusBadRequest},
		"braces in text": {http.MethodPost, `{"domain":"edge\"` + strings.Repeat("{", 900) + `"}`, http.StatusBadRequest},
	} {
		if w := post(tt.method, tt.body); w.Code != tt.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
		}
	}
	// The handler bounds size and objects of a body.
	many := func(n int) string {
		return `{"domain":"edge","descriptors":[{"entries":[{}` + strings.Repeat(",{}", n-1) + `]}]}`
	}
	for name, tt := range map[string]struct {
		body string
		code int
		says string
	}{
		"as long as may be":      {`{"domain":"edge"}` + strings.Repeat(" ", maxJSON-17), http.StatusBadRequest, "the request has no descriptors"},
		"a byte longer":          {`{"domain":"edge"}` + strings.Repeat(" ", maxJSON-16), http.StatusRequestEntityTooLarge, "262144 bytes"},
		"as many as may be":      {many(maxEntries), http.StatusOK, ""},
		"an entry more":          {many(maxEntries + 1), http.StatusTooManyRequests, "OVER_LIMIT"},
		"nothing but braces":     {many(80_000), http.StatusBadRequest, "objects, more than 4609"},
		"braces that do not end": {strings.Repeat("{", 100_000), http.StatusBadRequest, "objects, more than 4609"},
		"brackets":               {`{"descriptors":` + strings.Repeat("[", 100_000), http.StatusBadRequest, "not a RateLimitRequest"},
		"text of braces":         {`{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"` + strings.Repeat(`{\"`, 50_000) + `"}]}]}`, http.StatusOK, ""},
	} {
		if w := post(http.MethodPost, tt.body); w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s: %d %.200s, want %d %q", name, w.Code, w.Body, tt.code, tt.says)
		}
	}
	w = httptest.NewRecorder()
	newService(t, adaptertest.FailingStore{Err: errors.New("gone")}).ServeJSON(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(byKey)))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("store gone: %d, want 503", w.Code)
	}
}

// TestWhatJSONTakes posts the bodies that take the most memory. No body may take more than
// two megabytes, which is twice the largest message of gRPC.
func TestWhatJSONTakes(t *testing.T) {
	s := newService(t, nil)
	h := http.HandlerFunc(s.ServeJSON)
	const around = `{"domain":"edge","descriptors":[{"entries":[]}]}`
	entries := func(one string, n int) string {
		return `{"domain":"edge","descriptors":[{"entries":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}]}`
	}
	for name, body := range map[string]string{
		"empty entries, too many": entries(`{}`, (maxJSON-len(around))/3),
		"entries":                 entries(`{"key":"k","value":"`+strings.Repeat("v", 35)+`"}`, maxEntries),
		"escapes":                 entries(`{"key":"k","value":"`+strings.Repeat(`\u00e9`, 40_000)+`"}`, 1),
		"braces":                  strings.Repeat("{", maxJSON),
		"brackets":                `{"descriptors":` + strings.Repeat("[", maxJSON-20),
		"nulls":                   entries("null", (maxJSON-len(around))/5),
		"numbers":                 `{"hitsAddend":` + strings.Repeat("1", maxJSON-20) + "}",
		"one text":                `{"domain":"` + strings.Repeat("x", maxJSON-20) + `"}`,
		"too long":                strings.Repeat(" ", 4<<20),
	} {
		post := func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(body)))
		}
		post()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		post()
		runtime.ReadMemStats(&after)
		most := uint64(2 << 20)
		if underRace() {
			most += most / 2
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > most {
			t.Errorf("%s: a body of %d bytes takes %d kB", name, len(body), grown>>10)
		}
	}
}

// underRace reports whether the race detector is on. With it, allocations are larger, and a
// sync.Pool loses some of its items.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestStreams holds places and gives them back, by the metadata of calls over each transport.
func TestStreams(t *testing.T) {
	for name, server := range map[string]interface {
		grpc.ServiceRegistrar
		Serve(l net.Listener) error
		Stop()
	}{
		"standard": grpc.NewServer(grpc.ForceServerCodecV2(adapter.NewCodec())),
		"unary":    unary.NewServer(unary.Options{Codec: adapter.NewCodec(), Keep: adapter.Kept}),
	} {
		t.Run(name, func(t *testing.T) {
			one := rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 1, Window: time.Minute, Policy: window.InFlight}}}}
			s, _ := setup{rules: []rules.Rule{
				{Domain: "edge", Name: "backend", Path: []descriptors.Node{{Key: "in_flight", Value: "backend"}}, Terms: one},
				perMinute("budget", 100),
			}}.serve(t)
			s.Register(server)
			if u, ok := server.(*unary.Server); ok {
				u.Handle(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, s.Handle)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = server.Serve(l) }() // ends with Stop
			t.Cleanup(server.Stop)
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			call := func(stream, ending string, in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
				t.Helper()
				ctx := t.Context()
				if stream != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, adapter.Kept[adapter.StreamID].Name, stream)
				}
				if ending != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, adapter.Kept[adapter.StreamEnd].Name, ending)
				}
				out, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, in)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			charge := func(stream, ending string) bool {
				t.Helper()
				return call(stream, ending, ask(descriptor("in_flight=backend"))).GetOverallCode() == rlsv3.RateLimitResponse_OK
			}
			end := ask(descriptor("slidegate=end"), descriptor("budget=x", costs(7)))
			for _, step := range []struct {
				what    string
				allowed bool
				want    bool
			}{
				{"the first stream", charge("a", ""), true},
				{"the second stream", charge("b", "-"), false},
				{"the first stream again", charge("a", "-"), true},
			} {
				if step.allowed != step.want {
					t.Errorf("%s: allowed is %v, want %v", step.what, step.allowed, step.want)
				}
			}
			for range 2 {
				if n := len(call("a", "via_upstream", end).GetStatuses()); n != 2 {
					t.Errorf("%d statuses for 2 descriptors", n)
				}
			}
			if !charge("c", "") {
				t.Error("the end of a stream gives nothing back")
			}
			if n := call("", "", ask(descriptor("budget=x"))).GetStatuses()[0].GetLimitRemaining(); n != 92 {
				t.Errorf("%d are left of the budget after two ends and a charge of 1, want 92", n)
			}
			if call("", "via_upstream", ask(descriptor("budget=x", costs(200)))); call("", "", ask(descriptor("budget=x", costs(0)))).GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
				t.Error("a report is not recorded")
			}
		})
	}
}

// TestStreamFields reads what a call keeps of its metadata.
func TestStreamFields(t *testing.T) {
	long := string(make([]byte, 129))
	stream, end := adapter.Kept[adapter.StreamID].Value, adapter.Kept[adapter.StreamEnd].Value
	if stream(long) != "" || stream("-") != "" || stream("a") != "a" {
		t.Error("a stream that is too long or absent has an id")
	}
	if len(end(long)) != 128 || end("-") != "" || end("via_upstream") != "via_upstream" {
		t.Error("an ending is not cut, or absent")
	}
}
