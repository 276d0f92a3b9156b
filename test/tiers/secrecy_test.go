package tiers

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/otlp"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// watchedRules have limits that are small enough to deny, on entries of every kind that denials,
// tops and usage show.
const watchedRules = `
  - key: customer
    rate_limit: {name: per-customer, unit: hour, requests_per_unit: 1}
  - key: route
    rate_limit: {name: per-route, unit: hour, requests_per_unit: 1}
    descriptors:
      - key: api_key
        rate_limit: {name: per-route-and-key, unit: hour, requests_per_unit: 1}
`

// keySpellings are the ways in which clients write a key.
func keySpellings(key string) []string {
	percent := ""
	for i := range len(key) {
		percent += fmt.Sprintf("%%%02X", key[i])
	}
	pair := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return []string{
		key, " " + key + "\t", key + "," + key, "Bearer " + key, "BEARER\t" + key + ",", "ApiKey " + key, "Token " + key,
		"/orders/" + key, "/orders?key=" + key, `"` + key + `"`, percent, "Bearer " + percent,
		key + key, strings.ToLower(key), "bearer  " + strings.ToLower(key),
		"Basic " + pair("user:"+key), "basic " + pair(key+":"), "BASIC " + pair(key),
	}
}

// TestViewsShowNoKey has everything on that shows what rls does: the log at debug level, traces,
// denials, tops, the admin API and the console. It puts API keys into requests, and into every
// field and parameter of the admin port, and then searches for them everywhere. make test types a third
// of the spellings of a key into the admin port, make test-long all.
func TestViewsShowNoKey(t *testing.T) {
	t.Parallel()
	for store, transport := range map[string]string{"memory": edge.Unary, "redis": edge.Standard} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p, e := make(plantedKeys), new(evidence)
			receiver := otlp.Start(t)
			env := secretSettings()
			for name, value := range map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_SCHEDULE_DELAY": "100",
				"SLIDEGATE_INSIGHT_LOGGED_PER_SECOND": "10000",
			} {
				env[name] = value
			}
			addr := ""
			if store == "redis" {
				addr = servers.StartRedis(t).Addr()
				for name, value := range stack.OnRedis(addr) {
					env[name] = value
				}
			}
			tiers := threeTiers + `
subjects:
  - {id: acme, tier: pro, keys: [{plain: "` + p.at("a customer's") + `"}]}
  - {id: gone, tier: pro, disabled: true, keys: [{plain: "` + p.at("a disabled customer's") + `"}]}
`
			rls := edge.RLS(t, edge.RLSOptions{Rules: secretRules(p) + watchedRules, Tiers: tiers, Env: env, Way: edge.Way{Transport: transport}})

			sendKeysEverywhere(t, rls, p, e)
			sendSpellings(t, rls, p, e)
			typeKeys(t, rls, p, e)
			e.recordViews(t, rls)

			receiver.Wait(t, "a span", func(otlp.Span) bool { return true })
			if addr != "" {
				for key, text := range redisTexts(t, addr) {
					e.add("Redis", key, text)
				}
			}
			e.recordPages(t, rls)
			e.recordLog(t, rls)
			e.add("the spans", string(receiver.Raw()), fmt.Sprint(receiver.Spans()))
			for where, want := range map[string]string{
				"the log": `"msg":"denied"`, "/v1/denials?limit=10000": `"rule":"per-route-and-key"`,
				"/v1/top": `"name":`, "/v1/resets": `"reason":`, "the spans": "slidegate.outcome",
			} {
				if !strings.Contains(e.found[where].String(), want) {
					t.Errorf("%s has no %s, so the search there proves nothing", where, want)
				}
			}
			e.wantNoKeys(t, p)
		})
	}
}

// sendSpellings sends keys in every spelling, in every part of a request but in entries that a rule
// names and that are not for keys.
func sendSpellings(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	conn := stack.Dial(t, rls)
	limits, authorization := rlsv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
	for _, place := range []string{"a customer's", "a stranger's in every spelling"} {
		for _, text := range keySpellings(p.at(place)) {
			in := &rlsv3.RateLimitRequest{Domain: "edge"}
			add := func(entries ...string) {
				d := new(ratelimitcommonv3.RateLimitDescriptor)
				for i := 0; i < len(entries); i += 2 {
					d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
				}
				in.Descriptors = append(in.Descriptors, d)
			}
			add("api_key", text, "remote_address", "192.0.2.1")
			add("route", "search", "api_key", text)
			add("api_key", text)
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			ctx = metadata.AppendToOutgoingContext(ctx, "x-request-id", strings.TrimSpace(text), "x-forwarded-for", strings.TrimSpace(text))
			for _, name := range []string{"unnamed", "request_id", "x-request-id", "path", "generic_key"} {
				add(name, text)
			}
			for range 3 {
				out, err := limits.ShouldRateLimit(t.Context(), stack.Request(1, "watched=here"))
				e.add("answers of RateLimitService", prototext.Format(out), fmt.Sprint(err))
				for _, d := range in.Descriptors {
					one := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{d, in.Descriptors[2]}}
					out, err := limits.ShouldRateLimit(ctx, one)
					e.add("answers of RateLimitService", prototext.Format(out), fmt.Sprint(err))
				}
				out, err = limits.ShouldRateLimit(ctx, in)
				e.add("answers of RateLimitService", prototext.Format(out), fmt.Sprint(err))
			}
			check := checkOf(nil)
			check.Attributes.Request.Http.Path = "/orders/" + url.PathEscape(text) + "?key=" + url.QueryEscape(text)
			check.Attributes.Request.Http.HeaderMap = new(corev3.HeaderMap)
			for _, name := range []string{"x-api-key", "authorization", "x-request-id", "x-forwarded-for", "cookie"} {
				check.Attributes.Request.Http.HeaderMap.Headers = append(check.Attributes.Request.Http.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(text)})
			}
			check.Attributes.ContextExtensions = map[string]string{"domain": "edge", "anonymous": "true", "descriptors": "route=search,api_key=%KEY%;note=%REQ(x-api-key)%"}
			for range 3 {
				answer, err := authorization.Check(ctx, check)
				e.add("answers of Authorization", prototext.Format(answer), fmt.Sprint(err))
			}
			cancel()
		}
	}
}

// typeKeys puts keys into every parameter, path, field and header of the admin port.
func typeKeys(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	rng := random.Rand(t, 0)
	for _, place := range []string{"a customer's", "a stranger's that an operator typed"} {
		for i, text := range keySpellings(p.at(place)) {
			if i > 0 && !random.Long() && rng.IntN(3) > 0 {
				continue
			}
			typed := url.QueryEscape(text)
			for path, names := range map[string][]string{
				"/v1/usage":   {"subject", "address", "digest", "descriptor", "rule", "cursor"},
				"/v1/logs":    {"rule", "cursor"},
				"/v1/denials": {"rule", "subject", "route", "address", "request", "since", "shadow", "limit"},
				"/v1/top":     {"by", "order", "minutes", "limit"},
				"/v1/history": {"rule", "subject", "from", "to"},
				"/v1/rules":   {"q", "domain", "limit"},
				"/v1/resets":  nil, "/v1/state": nil, "/v1/openapi.yaml": nil,
				"/v1/tiers/lookup": {"digest", "id"},
				"/subject":         {"id", "address", "digest", "rule", "cursor", "reset"},
				"/denials":         {"rule", "subject", "route", "address", "request", "since", "shadow"},
				"/rules":           {"text", "rule", "only"}, "/top": {"by", "order", "minutes"},
				"/": nil, "/audit": nil, "/try": {"descriptors"}, "/login": {"next", "to", "back"},
				"/rlconfig": nil, "/stats": nil, "/metrics": nil,
			} {
				if i%3 != 0 && !strings.HasPrefix(path, "/v1/") {
					continue // pages take longer
				}
				for _, name := range names {
					e.ask(t, rls, http.MethodGet, path+"?"+name+"="+typed, "", "")
				}
				e.ask(t, rls, http.MethodGet, path+"?subject=acme&rule="+typed+"&cursor="+typed, "", "")
				e.ask(t, rls, http.MethodGet, path+"?"+typed+"=1", "", "")
				e.ask(t, rls, http.MethodGet, path+"?a=1%zz"+text[:4], "", "")
			}
			for _, d := range []string{"edge/api_key=", "edge/route=search,api_key=", "edge/authorization=", "edge/unnamed=", "nowhere/api_key=", ""} {
				e.ask(t, rls, http.MethodGet, "/v1/usage?descriptor="+url.QueryEscape(d+descriptors.Escape(text)), "", "")
			}
			for _, path := range []string{"/v1/", "/", "/console/", "/subject/", "/debug/pprof/"} {
				e.ask(t, rls, http.MethodGet, path+url.PathEscape(text), "", "")
			}
			quoted := fmt.Sprintf("%q", text)
			for _, field := range []string{"subject", "address", "digest", "rule"} {
				body := map[string]string{"subject": `"acme"`, "reason": `"ticket"`}
				if field == "address" || field == "digest" {
					delete(body, "subject")
				}
				body[field] = quoted
				e.ask(t, rls, http.MethodPost, "/v1/reset", "application/json", object(body))
			}
			for path, bodies := range map[string][]string{
				"/v1/reset":            {`{"descriptor": ` + fmt.Sprintf("%q", "edge/api_key="+descriptors.Escape(text)) + `, "reason": "ticket"}`},
				"/v1/explain":          {`{"descriptors": [` + fmt.Sprintf("%q", "api_key="+descriptors.Escape(text)) + `]}`, `{"domain": ` + quoted + `, "descriptors": ["a=b"]}`, `{"descriptors": ["a=b"], "tier": ` + quoted + `}`, `{"descriptors": [{"entries": [{"key": "api_key", "value": ` + quoted + `}]}]}`},
				"/v1/reload":           {`{}`},
				"/v1/tiers/invalidate": {`{"subject": ` + quoted + `}`, `{"digest": ` + quoted + `}`},
			} {
				bodies = append(bodies, `{"descriptors": [`+quoted+`]}`, `{"descriptors": [{"entries": [{"key": "unnamed", "value": `+quoted+`}, {"key": `+quoted+`, "value": "a"}]}]}`)
				for _, body := range append(bodies, `{`+quoted+`: 1}`, quoted, `{"reason": `+quoted, `{"subject": [`+quoted+`]}`) {
					e.ask(t, rls, http.MethodPost, path, "application/json", body)
				}
			}
			for path, fields := range map[string][]string{
				"/find": {"who"}, "/rules": {"text", "rule", "only"}, "/denials": {"rule", "subject", "route", "address", "since", "shadow"},
				"/subject": {"id", "address", "digest", "rule"}, "/try": {"descriptors", "domain", "tier", "cost"}, "/login": {"token", "username"}, "/logout": {"x"},
			} {
				for _, field := range fields {
					form := url.Values{field: {text}, "reason": {"ticket"}}
					if field == "descriptors" {
						form = url.Values{field: {"api_key=" + descriptors.Escape(text) + "\nroute=search,api_key=" + descriptors.Escape(text)}, "domain": {"edge"}, "cost": {"1"}}
					}
					e.ask(t, rls, http.MethodPost, path, "application/x-www-form-urlencoded", form.Encode())
				}
			}
		}
	}
	e.ask(t, rls, http.MethodPost, "/v1/reset", "application/json", `{"subject": "acme", "reason": "ticket"}`)
}

// object returns a JSON object of encoded values.
func object(fields map[string]string) string {
	var all []string
	for name, value := range fields {
		all = append(all, fmt.Sprintf("%q: %s", name, value))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// direct is a client that follows no redirects, so that each answer is searched.
var direct = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
