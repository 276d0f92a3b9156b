package ratelimit

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// rule returns a rule for one entry. The name is that of a rules file.
func rule(name, key string, hits uint64, w time.Duration) rules.Rule {
	return rules.Rule{Name: name, Path: []descriptors.Node{{Key: key, AnyValue: true}}, Terms: rules.Terms{
		Limits: []rules.Limit{{Limit: window.Limit{Hits: hits, Window: w}}},
	}}
}

// TestAnswersOfReference compares whole answers with what envoyproxy/ratelimit sends, by
// message and by byte, through both transports.
func TestAnswersOfReference(t *testing.T) {
	shadow := rule("", "shadow", 1, time.Minute)
	shadow.Terms.Observe = 1
	own := rule("own", "own", 1, time.Minute)
	own.Answer.Denial = rules.Denial{Body: "slow down", ContentType: "text/plain"}
	formed := rule("", "formed", 1, time.Minute)
	formed.Answer.Denial = rules.Denial{Form: rules.FormAnthropic}
	free := rules.Rule{Name: "free", Path: []descriptors.Node{{Key: "free", AnyValue: true}}, Terms: rules.Terms{Unlimited: true}}
	over := rule("", "over", 1, time.Hour)
	over.Replaces = []string{"free"}
	withMetadata := rule("", "told", 2, 24*time.Hour)
	withMetadata.Answer.Metadata = map[string]any{"backend": "a"}
	rs := []rules.Rule{
		rule("", "plain", 3, time.Minute), rule("A \"name\"/1", "named", 3, 7*24*time.Hour), rule("two\nlines", "lines", 3, time.Second),
		shadow, own, formed, free, over, withMetadata,
	}
	const ok3 = `{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},"limitRemaining":2,"durationUntilReset":"60s"}]}`
	for name, tt := range map[string]struct {
		setup setup
		asked []string // the last one is compared
		want  string
	}{
		"a rule without a name": {setup{}, []string{`[{"entries":[{"key":"plain","value":"v"}]}]`}, ok3},
		"a rule with a name": {
			setup{},
			[]string{`[{"entries":[{"key":"named","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"A \"name\"/1","requestsPerUnit":3,"unit":"WEEK"},"limitRemaining":2,"durationUntilReset":"604800s"}]}`,
		},
		"a name that no header can carry": {
			setup{},
			[]string{`[{"entries":[{"key":"lines","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"two-lines","requestsPerUnit":3,"unit":"SECOND"},"limitRemaining":2,"durationUntilReset":"1s"}]}`,
		},
		"no limit": {setup{}, []string{`[{"entries":[{"key":"other","value":"v"}]}]`}, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"unlimited": {
			setup{},
			[]string{`[{"entries":[{"key":"free","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295}]}`,
		},
		"unlimited and replaced": {
			setup{},
			[]string{`[{"entries":[{"key":"free","value":"v"}]},{"entries":[{"key":"over","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295},{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"HOUR"},"durationUntilReset":"3600s"}]}`,
		},
		"denied": {
			setup{styles: []string{}},
			[]string{`[{"hitsAddend":3,"entries":[{"key":"plain","value":"v"}]}]`, `[{"entries":[{"key":"plain","value":"v"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},"durationUntilReset":"60s"}]}`,
		},
		"a cost that does not fit leaves nothing": {
			setup{},
			[]string{`[{"entries":[{"key":"plain","value":"v"}]}]`, `[{"hitsAddend":3,"entries":[{"key":"plain","value":"v"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},"durationUntilReset":"60s"}]}`,
		},
		"a limit that came with the descriptor": {
			setup{},
			[]string{`[{"limit":{"requestsPerUnit":9,"unit":"DAY"},"entries":[{"key":"named","value":"v"}]},{"limit":{"requestsPerUnit":9,"unit":"DAY"},"entries":[{"key":"other","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":9,"unit":"DAY"},"limitRemaining":8,"durationUntilReset":"86400s"},
			{"code":"OK","currentLimit":{"requestsPerUnit":9,"unit":"DAY"},"limitRemaining":8,"durationUntilReset":"86400s"}]}`,
		},
		"the rule's shadow_mode": {
			setup{},
			[]string{`[{"entries":[{"key":"shadow","value":"v"}]}]`, `[{"entries":[{"key":"shadow","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"60s"}]}`,
		},
		"rules.shadow_mode": {
			setup{prepare: (*rules.Rules).ObserveAll},
			[]string{
				`[{"entries":[{"key":"over","value":"v"}]},{"entries":[{"key":"shadow","value":"v"}]}]`, `[{"entries":[{"key":"over","value":"v"}]},{"entries":[{"key":"shadow","value":"v"}]}]`,
			},
			`{"overallCode":"OK","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":1,"unit":"HOUR"},"durationUntilReset":"3600s"},
			{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"60s"}]}`,
		},
		"the rule's own body": {
			setup{},
			[]string{`[{"entries":[{"key":"own","value":"v"}]}]`, `[{"entries":[{"key":"own","value":"v"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"name":"own","requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"60s"}],
			"responseHeadersToAdd":[{"key":"content-type","value":"text/plain"}],"rawBody":"c2xvdyBkb3du"}`,
		},
		"the form of the rule": {
			setup{},
			[]string{`[{"entries":[{"key":"formed","value":"v"}]}]`, `[{"entries":[{"key":"formed","value":"v"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"60s"}],
			"responseHeadersToAdd":[{"key":"content-type","value":"application/json"}],
			"rawBody":"` + base64.StdEncoding.EncodeToString([]byte(`{"type":"error","error":{"type":"rate_limit_error","message":"No room under rule formed: 1 per 1m; try again in 60 s."}}`)) + `"}`,
		},
		"the form of a route has no effect": {
			setup{},
			[]string{`[{"entries":[{"key":"over","value":"v"}]},{"entries":[{"key":"form","value":"openai"}]}]`, `[{"entries":[{"key":"over","value":"v"}]},{"entries":[{"key":"form","value":"openai"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":1,"unit":"HOUR"},"durationUntilReset":"3600s"},{"code":"OK"}]}`,
		},
		"the headers of the style reference": {
			setup{styles: []string{"reference"}},
			[]string{`[{"entries":[{"key":"plain","value":"v"}]},{"entries":[{"key":"over","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},"limitRemaining":2,"durationUntilReset":"60s"},
			{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"HOUR"},"durationUntilReset":"3600s"}],
			"responseHeadersToAdd":[{"key":"RateLimit-Limit","value":"1"},{"key":"RateLimit-Remaining","value":"0"},{"key":"RateLimit-Reset","value":"3600"}]}`,
		},
		"another style sends Retry-After": {
			setup{styles: []string{"x-ratelimit"}},
			[]string{`[{"entries":[{"key":"over","value":"v"}]}]`, `[{"entries":[{"key":"over","value":"v"}]}]`},
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":1,"unit":"HOUR"},"durationUntilReset":"3600s"}],
			"responseHeadersToAdd":[{"key":"x-ratelimit-limit","value":"1"},{"key":"x-ratelimit-remaining","value":"0"},{"key":"x-ratelimit-reset","value":"3600"},{"key":"retry-after","value":"3600"},
			{"key":"retry-after-ms","value":"3600000"},{"key":"x-should-retry","value":"false"}]}`,
		},
		"metadata.request": {
			setup{echo: true},
			[]string{`[{"hitsAddend":1,"entries":[{"key":"told","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":2,"unit":"DAY"},"limitRemaining":1,"durationUntilReset":"86400s"}],
			"dynamicMetadata":{"domain":"edge","descriptors":[{"entries":["told=v"],"hitsAddend":1}],"metadata":{"backend":"a"}}}`,
		},
		"metadata of a limit without room": {
			setup{echo: true, prepare: (*rules.Rules).ObserveAll},
			[]string{`[{"hitsAddend":3,"entries":[{"key":"told","value":"v"}]}]`},
			`{"overallCode":"OK","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":2,"unit":"DAY"},"durationUntilReset":"86400s"}],
			"dynamicMetadata":{"domain":"edge","descriptors":[{"entries":["told=v"],"hitsAddend":3}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, way := range []adaptertest.Way{adaptertest.Unary, adaptertest.Standard} {
				tt.setup.rules, tt.setup.reference = rs, true
				if tt.setup.styles == nil {
					tt.setup.styles = []string{}
				}
				s, _ := tt.setup.serve(t)
				s.now = time.Hour
				var got []byte
				for _, descriptors := range tt.asked {
					var err error
					if got, err = way(t, s.Service, encode(t, fromJSON(t, `{"domain":"edge","descriptors":`+descriptors+`}`))); err != nil {
						t.Fatal(err)
					}
				}
				want, read := new(rlsv3.RateLimitResponse), new(rlsv3.RateLimitResponse)
				if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
					t.Fatal(err)
				}
				if err := proto.Unmarshal(got, read); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, read, protocmp.Transform()); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
				if err != nil || string(bytes) != string(got) {
					t.Errorf("got the bytes % x, want % x, error %v", got, bytes, err)
				}
			}
		})
	}
}

// TestResetOfReferenceFalls: two hits some seconds apart have resets that fall, until the first
// hit expires.
func TestResetOfReferenceFalls(t *testing.T) {
	s, _ := setup{reference: true, styles: []string{}, rules: []rules.Rule{rule("", "k", 50, 24*time.Hour)}}.serve(t)
	const day = 24 * 60 * 60
	for _, step := range []struct {
		at   time.Duration
		cost uint64
		want int64
	}{{0, 0, day}, {0, 1, day}, {2 * time.Second, 1, day - 2}, {day*time.Second - 1500*time.Millisecond, 0, 2}, {day*time.Second + time.Second, 0, 1}} {
		s.now = time.Hour + step.at
		out, err := s.exchange(t.Context(), ask(descriptor("k=v", costs(step.cost))))
		if err != nil {
			t.Fatal(err)
		}
		if got := out.GetStatuses()[0].GetDurationUntilReset().GetSeconds(); got != step.want {
			t.Errorf("after %v: reset %d, want %d", step.at, got, step.want)
		}
	}
}

// TestJSONOfReference: /json answers every method, with the message alone.
func TestJSONOfReference(t *testing.T) {
	s, _ := setup{reference: true, styles: []string{rules.StyleReference}, rules: []rules.Rule{rule("", "k", 1, time.Minute)}}.serve(t)
	handler := http.HandlerFunc(s.ServeJSON)
	for i, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, "ODD"} {
		w := httptest.NewRecorder()
		body := strings.NewReader(`{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`)
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, "/json", body))
		status, code := http.StatusOK, rlsv3.RateLimitResponse_OK
		if i > 0 {
			status, code = http.StatusTooManyRequests, rlsv3.RateLimitResponse_OVER_LIMIT
		}
		out := new(rlsv3.RateLimitResponse)
		if err := protojson.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != status || out.GetOverallCode() != code {
			t.Errorf("%s: %d %s, error %v, want %d and %s", method, w.Code, w.Body, err, status, code)
		}
		if strings.HasSuffix(w.Body.String(), "\n") {
			t.Errorf("%s: the body ends with a line break", method)
		}
		if want := (http.Header{"Content-Type": {"application/json"}}); !cmp.Equal(want, w.Header()) {
			t.Errorf("%s: headers %v, want %v", method, w.Header(), want)
		}
		if n := len(out.GetResponseHeadersToAdd()); n != 3 {
			t.Errorf("%s: %d header mutations in the message, want 3", method, n)
		}
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/json", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("without a body: %d, want 400", w.Code)
	}
}
