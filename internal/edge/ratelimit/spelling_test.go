package ratelimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// TestSpellingsShareALog sends one value and one key in many spellings, in every way.
func TestSpellingsShareALog(t *testing.T) {
	s, _ := setup{rules: []rules.Rule{perMinute("a", 100), perMinute("api_key", 100)}, echo: true}.serve(t)
	ways := map[string]func(in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse{
		"JSON": func(in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
			body, err := protojson.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			w, out := httptest.NewRecorder(), new(rlsv3.RateLimitResponse)
			s.ServeJSON(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(string(body))))
			if err := protojson.Unmarshal(w.Body.Bytes(), out); err != nil {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			return out
		},
	}
	for name, way := range map[string]adaptertest.Way{"standard": adaptertest.Standard, "unary": adaptertest.Unary} {
		ways[name] = func(in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
			out, err := check(t, way, s.Service, in)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	remaining := map[string]uint32{"a": 100, "api_key": 100}
	for _, tt := range []struct{ key, value, echoed string }{
		{"a", "v", "a=v"},
		{"a", " v", "a=v"},
		{"a", "v\t", "a=v"},
		{"a", " \tv \t", "a=v"},
		{"api_key", "acme-key", "api_key=***"},
		{"api_key", " acme-key\t", "api_key=***"},
		{"api_key", "Bearer acme-key", "api_key=***"},
		{"api_key", "bEARER\t \tacme-key ", "api_key=***"},
		{"api_key", "apikey acme-key", "api_key=***"},
	} {
		for name, way := range ways {
			out := way(ask(&ratelimitcommonv3.RateLimitDescriptor{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: tt.key, Value: tt.value}}}))
			remaining[tt.key]--
			if got := out.GetStatuses()[0].GetLimitRemaining(); got != remaining[tt.key] {
				t.Errorf("%s, %s=%q: %d remain, want %d", name, tt.key, tt.value, got, remaining[tt.key])
			}
			echo := out.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues()[0].GetStructValue().GetFields()["entries"].GetListValue().GetValues()[0]
			if got := echo.GetStringValue(); got != tt.echoed {
				t.Errorf("%s, %s=%q: the metadata repeats %q, want %q", name, tt.key, tt.value, got, tt.echoed)
			}
		}
	}
}

// TestTheSourceIsAskedByTheKeyAlone proves that a customer source that wants API keys gets
// them without a scheme or white space, as from ext_authz.
func TestTheSourceIsAskedByTheKeyAlone(t *testing.T) {
	secrets := tier.NewSecrets([]string{"authorization"}, nil)
	for _, value := range []string{"acme-key", " acme-key ", "Bearer acme-key", "bearer\tacme-key"} {
		c := new(call)
		c.in.entries = []descriptors.Entry{{Key: "Authorization", Value: value}}
		c.in.descriptors = []described{{entries: 1}}
		c.read(secrets, true)
		want := identity.PlainKey{Fingerprint: secrets.Digest("acme-key"), Key: "acme-key"}
		if len(c.request.Plain) != 1 || c.request.Plain[0] != want {
			t.Errorf("%q: kept %+v, want %+v", value, c.request.Plain, want)
		}
		if got := c.request.Descriptors[0].Entries[0].Value; got != want.Fingerprint {
			t.Errorf("%q: the entry has the value %q, want the digest of the key", value, got)
		}
	}
}
