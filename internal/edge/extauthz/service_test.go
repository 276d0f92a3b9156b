package extauthz

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// countingMeters is a Meters that keeps its counts.
type countingMeters struct {
	results  map[Result]int
	degraded int
}

func (c *countingMeters) Authorized(r Result)               { c.results[r]++ }
func (c *countingMeters) DegradedAnswer(rules.OnStoreError) { c.degraded++ }

// failingStore is a store that cannot decide.
var failingStore = adaptertest.FailingStore{Err: errors.New("dial tcp 10.0.0.1:6379: refused")}

// failingSource is a resolver whose source never answers.
type failingSource struct{}

func (failingSource) Resolve(_ context.Context, _ tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	return tier.Answer{Unavailable: true}, wait >= 0
}

const acmeKey, hobbyKey, goneKey = "acme-key", "hobby-key", "gone-key"

// testService is a service whose store has the clock now. The tier free has 3 per 10 s for a
// key, and an address has 2 per minute.
type testService struct {
	*Service
	meters *countingMeters
	now    time.Duration
}

// everyCredential returns a credential of each kind.
func everyCredential() []settings.Credential {
	return []settings.Credential{
		{Kind: settings.CredentialHeader, Name: "x-api-key"},
		{Kind: settings.CredentialBearer},
		{Kind: settings.CredentialBasic},
		{Kind: settings.CredentialAPIKey},
		{Kind: settings.CredentialQuery, Name: "api_key"},
		{Kind: settings.CredentialCookie, Name: "key"},
	}
}

// defaults returns the options that a test can change.
func defaults() Options {
	return Options{Authz: settings.Authz{
		Credentials:   everyCredential(),
		SubjectHeader: "x-subject-id", TierHeader: "x-tier", LabelHeaders: []settings.LabelHeader{{Header: "x-region", Label: "region"}},
		IPv6Prefix: 64,
	}}
}

func newService(t testing.TB, store window.Store, change func(*Options)) *testService {
	t.Helper()
	s := &testService{meters: &countingMeters{results: make(map[Result]int)}, now: time.Hour}
	if store == nil {
		store = adaptertest.Memory(t, func() time.Duration { return s.now })
	}
	secrets := tier.NewSecrets([]string{"api_key", "authorization"}, []byte("pepper-pepper-pepper"))
	dir, err := tier.NewDirectory([]string{"free", "pro", "carrying"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	for key, subject := range map[string]tier.Subject{
		acmeKey: {ID: "acme", Tier: "pro", Extra: &tier.Extra{
			Labels:    map[string]string{"region": "eu", "plan": "négocié"},
			Overrides: map[string]tier.Override{"per-key": {Limits: []window.Limit{{Hits: 500, Window: time.Minute}}}},
		}},
		hobbyKey:       {ID: "hobby", Tier: "free"},
		"carrying-key": {ID: "big", Tier: "carrying"},
		goneKey:        {ID: "gone", Tier: "free", Disabled: true},
	} {
		if err := dir.Add(subject, secrets.Digest(key), secrets.Digest("second-"+key)); err != nil {
			t.Fatal(err)
		}
	}
	carried, err := limits.New([]limits.Limit{{Requests: 100, Unit: "minute"}, {Name: "tokens", Requests: 4294967295, Unit: "day"}})
	if err != nil {
		t.Fatal(err)
	}
	dir.SetLimits(map[string]*limits.Set{"carrying": carried})
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: dir})
	limit := func(hits uint64, w time.Duration) rules.Terms {
		return rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: w}}}}
	}
	for _, r := range []rules.Rule{
		{
			Domain: "edge", Name: "per-key", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}},
			ByTier: map[string]rules.Terms{"free": limit(3, 10*time.Second), "pro": limit(100, time.Minute)},
		},
		{Domain: "edge", Name: "per-address", Path: []descriptors.Node{{Key: "remote_address", AnyValue: true}}, Terms: limit(2, time.Minute)},
		{
			Domain: "edge", Name: "login", Path: []descriptors.Node{{Key: "route", Value: "login"}}, Terms: limit(1, time.Minute),
			Answer: rules.Answer{Denial: rules.Denial{Body: "<p>Slow down.", ContentType: "text/html"}},
		},
		{
			Domain: "once", Name: "orders", Path: []descriptors.Node{{Key: "user", AnyValue: true}}, Terms: limit(1, time.Minute),
			Charge: rules.Charge{Once: rules.ChargeOnce{Entry: "idem", For: time.Minute, Retries: 1}},
		},
		{Domain: "once", Name: "search", Path: []descriptors.Node{{Key: "search", AnyValue: true}}, Terms: limit(1, time.Minute)},
		{Domain: "flight", Name: "backend", Path: []descriptors.Node{{Key: "in_flight", AnyValue: true}}, Terms: rules.Terms{
			Limits: []rules.Limit{{Limit: window.Limit{Hits: 2, Window: time.Minute, Policy: window.InFlight}}},
		}},
		{Domain: "blind", Name: "blind", Path: []descriptors.Node{{Key: "api_key", AnyValue: true}}, Terms: limit(2, time.Minute), Storage: rules.Storage{OnError: rules.StoreErrorDeny}},
	} {
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	render := answer.NewRenderer(rules.StyleRateLimit)
	o := defaults()
	o.Decider = decide.NewDecider(rs, decide.Options{Store: store})
	o.Secrets, o.Headers, o.Meters = secrets, render, s.meters
	if change != nil {
		change(&o)
	}
	s.Service = NewService(o)
	return s
}

// ask returns a request with joined header fields. Write fields as "name: value".
func ask(path string, context map[string]string, fields ...string) *authv3.CheckRequest {
	joined := make(map[string]string)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if old, ok := joined[name]; ok {
			value = old + "," + value
		}
		joined[name] = value
	}
	return asked(path, context, &authv3.AttributeContext_HttpRequest{Headers: joined})
}

// askRaw returns a request with raw header fields, as Envoy sends with encode_raw_headers.
func askRaw(path string, context map[string]string, fields ...string) *authv3.CheckRequest {
	m := new(corev3.HeaderMap)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	return asked(path, context, &authv3.AttributeContext_HttpRequest{HeaderMap: m})
}

func asked(path string, context map[string]string, h *authv3.AttributeContext_HttpRequest) *authv3.CheckRequest {
	h.Method, h.Path, h.Host = "GET", path, "API.example.com"
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "192.0.2.7", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request:           &authv3.AttributeContext_Request{Http: h},
		ContextExtensions: context,
	}}
}

// ask sends in through the service in one way. The answer always has a status.
func (s *testService) ask(t testing.TB, way adaptertest.Way, in *authv3.CheckRequest) *authv3.CheckResponse {
	t.Helper()
	out := new(authv3.CheckResponse)
	if err := adaptertest.Ask(t, way, s, in, out); err != nil {
		t.Fatal(err)
	}
	if out.GetStatus() == nil {
		t.Fatalf("the answer has no status: %v", out)
	}
	return out
}

// check sends in through the handler of grpc-go.
func (s *testService) check(t testing.TB, in *authv3.CheckRequest) *authv3.CheckResponse {
	t.Helper()
	return s.ask(t, adaptertest.Standard, in)
}

func fromJSON(t testing.TB, text string) *authv3.CheckResponse {
	t.Helper()
	m := new(authv3.CheckResponse)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}

// These are parts of expected answers.
const (
	ownLimit  = `"labels":{"plan":"négocié","region":"eu"},"subject":"acme","tier":"pro"`
	acmeUp    = `{"header":{"key":"x-subject-id","value":"acme"},"appendAction":2},{"header":{"key":"x-tier","value":"pro"},"appendAction":2},{"header":{"key":"x-region","value":"eu"},"appendAction":2}`
	problemIs = `{"header":{"key":"content-type","value":"application/problem+json"},"appendAction":2}`
)

// refused returns the answer of a request that does not pass, as JSON.
func refused(field string, code, status int, header, reason, title, detail, metadata string) string {
	body := fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d,"detail":%q,"reason":%q}`, title, status, detail, reason)
	if header != "" {
		header += ","
	}
	return fmt.Sprintf(`{"status":{"code":%d},%q:{"status":{"code":%d},"headers":[%s],"body":%q},"dynamicMetadata":{"reason":%q%s}}`,
		code, field, status, header+problemIs, body, reason, metadata)
}

func challenge(bearerError string) string {
	return `{"header":{"key":"www-authenticate","value":"ApiKey realm=\"api\""},"appendAction":2},` +
		`{"header":{"key":"www-authenticate","value":"Bearer realm=\"api\"` + bearerError + `"}},` +
		`{"header":{"key":"www-authenticate","value":"Basic realm=\"api\""}}`
}

func TestCheck(t *testing.T) {
	invalid := challenge(`, error=\"invalid_token\"`)
	again := `{"header":{"key":"retry-after","value":"1"},"appendAction":2}`
	anonymous := map[string]string{"anonymous": "true"}
	for _, tt := range []struct {
		name   string
		change func(*Options)
		in     *authv3.CheckRequest
		want   string
		result Result
	}{
		{
			"authenticated", nil, ask("/", nil, "x-api-key: acme-key"),
			`{"status":{},"okResponse":{"headers":[` + acmeUp + `]},"dynamicMetadata":{` + ownLimit + `}}`, Authenticated,
		},
		{
			"limits of the tier", nil, ask("/", nil, "x-api-key: carrying-key"),
			`{"status":{},"okResponse":{"headers":[{"header":{"key":"x-subject-id","value":"big"},"appendAction":2},
			{"header":{"key":"x-tier","value":"carrying"},"appendAction":2}],"headersToRemove":["x-region"]},"dynamicMetadata":{"subject":"big","tier":"carrying",
			"limit":{"requests_per_unit":100,"unit":"MINUTE"},"limit_tokens":{"requests_per_unit":4294967295,"unit":"DAY"}}}`, Authenticated,
		},
		{
			"a header without a value is removed", nil, ask("/", nil, "x-api-key: hobby-key", "x-region: eu"),
			`{"status":{},"okResponse":{"headers":[{"header":{"key":"x-subject-id","value":"hobby"},"appendAction":2},
			{"header":{"key":"x-tier","value":"free"},"appendAction":2}],"headersToRemove":["x-region"]},"dynamicMetadata":{"subject":"hobby","tier":"free"}}`, Authenticated,
		},
		{
			"a label that is no header", func(o *Options) { o.LabelHeaders = []settings.LabelHeader{{Header: "x-plan", Label: "plan"}} }, ask("/", nil, "x-api-key: acme-key"),
			`{"status":{},"okResponse":{"headers":[{"header":{"key":"x-subject-id","value":"acme"},"appendAction":2},
			{"header":{"key":"x-tier","value":"pro"},"appendAction":2}],"headersToRemove":["x-plan"]},"dynamicMetadata":{` + ownLimit + `}}`, Authenticated,
		},
		{
			"no headers", func(o *Options) { o.SubjectHeader, o.TierHeader, o.LabelHeaders = "", "", nil }, ask("/", nil, "x-api-key: hobby-key"),
			`{"status":{},"okResponse":{},"dynamicMetadata":{"subject":"hobby","tier":"free"}}`, Authenticated,
		},
		{
			"anonymous", nil, ask("/", anonymous),
			`{"status":{},"okResponse":{"headers":[{"header":{"key":"x-tier","value":"free"},"appendAction":2}],"headersToRemove":["x-subject-id","x-region"]},
			"dynamicMetadata":{"subject":"ip:192.0.2.7","tier":"free"}}`, Anonymous,
		},
		{
			"missing", nil, ask("/", nil),
			refused("deniedResponse", 16, 401, challenge(""), "missing", "Unauthorized", "This request needs an API key.", ""), Missing,
		},
		{
			"only true is true", nil, ask("/", map[string]string{"anonymous": "True"}),
			refused("deniedResponse", 16, 401, challenge(""), "missing", "Unauthorized", "This request needs an API key.", ""), Missing,
		},
		{
			"nothing at all", nil, &authv3.CheckRequest{},
			refused("deniedResponse", 16, 401, challenge(""), "missing", "Unauthorized", "This request needs an API key.", ""), Missing,
		},
		{
			"malformed", nil, ask("/", nil, "x-api-key: a b"),
			refused("deniedResponse", 16, 401, invalid, "malformed", "Unauthorized", "The API key is malformed, or there is more than one.", ""), Malformed,
		},
		{
			"unknown", nil, ask("/", nil, "x-api-key: unknown"),
			refused("deniedResponse", 16, 401, invalid, "unknown", "Unauthorized", "The API key is not valid.", ""), Unknown,
		},
		{
			"unknown where none is needed", nil, ask("/", anonymous, "x-api-key: unknown"),
			refused("deniedResponse", 16, 401, invalid, "unknown", "Unauthorized", "The API key is not valid.", ""), Unknown,
		},
		{
			"disabled", nil, ask("/", nil, "x-api-key: gone-key"),
			refused("deniedResponse", 7, 403, "", "disabled", "Forbidden", "The subject of this API key is disabled.", `,"subject":"gone","tier":"free"`), Disabled,
		},
		{
			"unavailable", func(o *Options) { o.Subjects = failingSource{} }, ask("/", nil, "x-api-key: acme-key"),
			refused("errorResponse", 14, 503, again, "unavailable", "Service Unavailable", "The API key cannot be checked now.", ""), Unavailable,
		},
		{
			"bad template", nil, ask("/", map[string]string{"domain": "edge", "descriptors": "%"}, "x-api-key: hobby-key"),
			refused("errorResponse", 13, 500, "", "misconfigured", "Internal Server Error", "The authorization of this route is misconfigured.", `,"subject":"hobby","tier":"free"`), Misconfigured,
		},
		{
			"bad cost", nil, ask("/", map[string]string{"domain": "edge", "cost": "-1"}, "x-api-key: hobby-key"),
			refused("errorResponse", 13, 500, "", "misconfigured", "Internal Server Error", "The authorization of this route is misconfigured.", `,"subject":"hobby","tier":"free"`), Misconfigured,
		},
		{
			"empty domain", nil, ask("/", map[string]string{"domain": ""}, "x-api-key: hobby-key"),
			refused("errorResponse", 13, 500, "", "misconfigured", "Internal Server Error", "The authorization of this route is misconfigured.", `,"subject":"hobby","tier":"free"`), Misconfigured,
		},
		{
			"limits", nil, ask("/", map[string]string{"domain": "edge"}, "x-api-key: hobby-key"),
			`{"status":{},"okResponse":{"headers":[{"header":{"key":"x-subject-id","value":"hobby"},"appendAction":2},
			{"header":{"key":"x-tier","value":"free"},"appendAction":2}],"headersToRemove":["x-region"],"responseHeadersToAdd":[
			{"header":{"key":"ratelimit-policy","value":"\"per-key\";q=3;w=10, \"per-address\";q=2;w=60"},"appendAction":2},
			{"header":{"key":"ratelimit","value":"\"per-address\";r=1;t=60"},"appendAction":2}]},
			"dynamicMetadata":{"subject":"hobby","tier":"free","rule":"per-address","limit":2,"remaining":1}}`, Authenticated,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, nil, tt.change)
			if diff := cmp.Diff(fromJSON(t, tt.want), s.check(t, tt.in), protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[Result]int{tt.result: 1}, s.meters.results); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStoreThatCannotDecide(t *testing.T) {
	s := newService(t, failingStore, nil)
	out := s.check(t, ask("/", map[string]string{"domain": "edge"}, "x-api-key: hobby-key"))
	if out.GetStatus().GetCode() != 14 || out.GetErrorResponse().GetStatus().GetCode() != 503 || s.meters.results[Undecided] != 1 {
		t.Errorf("answer = %v, want an error response", out)
	}
	if strings.Contains(out.String(), "10.0.0.1") {
		t.Errorf("the address of the store shows in %v", out)
	}
	// If the rule has an on_store_error, that decides.
	out = s.check(t, ask("/", map[string]string{"domain": "blind"}, "x-api-key: hobby-key"))
	if out.GetStatus().GetCode() != 8 || out.GetDeniedResponse().GetStatus().GetCode() != 429 || s.meters.degraded != 1 {
		t.Errorf("answer = %v, want a denial, counted as degraded (%d)", out, s.meters.degraded)
	}
	// A route without limits needs no store.
	if out = s.check(t, ask("/", nil, "x-api-key: hobby-key")); out.GetStatus().GetCode() != 0 {
		t.Errorf("answer = %v, want OK", out)
	}
}

// TestNoTiers proves that every key is unknown if the rules have no subjects.
func TestNoTiers(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	decider := decide.NewDecider(rs, decide.Options{Store: failingStore})
	s := newService(t, nil, func(o *Options) { o.Decider = decider })
	s.check(t, ask("/", nil, "x-api-key: acme-key"))
	out := s.check(t, ask("/", map[string]string{"anonymous": "true"}))
	if diff := cmp.Diff(map[Result]int{Unknown: 1, Anonymous: 1}, s.meters.results); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, ok := out.GetDynamicMetadata().GetFields()["tier"]; ok {
		t.Errorf("metadata = %v, want no tier", out.GetDynamicMetadata())
	}
}

func encode(t testing.TB, m proto.Message) string {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRegister calls a server of grpc-go and compares the answers with those of Handle.
func TestRegister(t *testing.T) {
	s := newService(t, nil, nil)
	conn := adaptertest.Serve(t, s, func(r grpc.ServiceRegistrar) {
		authv3.RegisterAuthorizationServer(r, authv3.UnimplementedAuthorizationServer{})
	})
	client := authv3.NewAuthorizationClient(conn)
	for _, in := range []*authv3.CheckRequest{
		{}, ask("/", nil, "x-api-key: acme-key"), ask("/", nil, "x-api-key: unknown"), askRaw("/?api_key=acme-key", nil),
	} {
		got, err := client.Check(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.ask(t, adaptertest.WithoutWaiting, in), got, protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// wait advances the clock past the window of an API key.
func (s *testService) wait() { s.now += 10 * time.Second }

// BenchmarkCheck measures from the bytes of a request to the bytes of its answer. For
// comparison, "proto" only reads the request with the protobuf library.
func BenchmarkCheck(b *testing.B) {
	basic := "authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:acme-key"))
	fields := []string{":method: GET", ":path: /v1/orders", ":authority: api.example.com", "user-agent: curl/8", "accept: */*", "x-request-id: 1"}
	for name, in := range map[string]*authv3.CheckRequest{
		"authenticated": ask("/v1/orders", nil, append(fields, "x-api-key: hobby-key")...),
		"basic":         ask("/v1/orders", nil, append(fields, basic)...),
		"unknown":       ask("/v1/orders", nil, append(fields, "x-api-key: unknown")...),
		"one hop":       ask("/v1/orders", map[string]string{"domain": "edge", "descriptors": "api_key"}, append(fields, "x-api-key: hobby-key")...),
		"limited":       ask("/v1/orders", map[string]string{"domain": "edge", "descriptors": "api_key", "cost": "9"}, append(fields, "x-api-key: hobby-key")...),
	} {
		request, s := []byte(encode(b, in)), newService(b, nil, nil)
		b.Run(name, func(b *testing.B) { adaptertest.BenchmarkStandard(b, s, request, s.wait) })
		b.Run("unary "+name, func(b *testing.B) { adaptertest.BenchmarkUnary(b, s, request, s.wait) })
		if name != "authenticated" {
			continue
		}
		b.Run("proto", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(request, new(authv3.CheckRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
