package extauthz

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/apikey"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// slowSource is a resolver whose answers take time. It records the wait of each question that
// may wait.
type slowSource struct {
	tier.Resolver
	silent string // the digest of a key for which the source is unavailable
	slow   string // the digest of a key that has an answer only with waiting
	takes  time.Duration
	waits  []time.Duration
}

func (s *slowSource) Resolve(ctx context.Context, k tier.Key, wait time.Duration) (a tier.Answer, ok bool) {
	if wait < 0 && k.Digest == s.slow {
		return tier.Answer{}, false
	}
	if wait < 0 {
		return s.Resolver.Resolve(ctx, k, wait)
	}
	s.waits = append(s.waits, wait)
	time.Sleep(min(wait, s.takes)) // in a synctest bubble
	if k.Digest == s.silent {
		return tier.Answer{Unavailable: true}, true
	}
	return s.Resolver.Resolve(ctx, k, wait)
}

// TestTwoSubjects sends API keys in several places, in every way. Keys of two subjects are
// refused.
func TestTwoSubjects(t *testing.T) {
	long := strings.Repeat("x", apikey.MaxKey+1)
	for _, tt := range []struct {
		name, path string
		fields     []string
		want       Result
	}{
		{"of another subject", "/", []string{"x-api-key: acme-key", "authorization: Bearer hobby-key"}, Ambiguous},
		{"of another subject, whose credential is a password", "/", []string{"x-api-key: acme-key", "authorization: Basic " + basic("u:hobby-key")}, Ambiguous},
		{"of another subject, in a parameter", "/?api%5Fkey=hobby-key", []string{"x-api-key: acme-key"}, Ambiguous},
		{"of another subject, in a cookie", "/", []string{"x-api-key: acme-key", "cookie: a=b; key=hobby-key"}, Ambiguous},
		{"of another subject, in the third place", "/?api_key=hobby-key", []string{"x-api-key: acme-key", "authorization: Bearer token"}, Ambiguous},
		{"of another subject, with white space", "/", []string{"x-api-key: \tacme-key ", "authorization:  bearer\t hobby-key "}, Ambiguous},
		{"of a disabled subject", "/", []string{"x-api-key: acme-key", "authorization: Bearer gone-key"}, Ambiguous},
		{"without the first place", "/?api_key=hobby-key", []string{"authorization: ApiKey acme-key"}, Ambiguous},

		{"of the same subject", "/", []string{"x-api-key: acme-key", "authorization: Bearer second-acme-key"}, Authenticated},
		{"the same key everywhere", "/?api_key=acme-key", []string{"x-api-key: acme-key", "authorization: Bearer acme-key", "cookie: key=acme-key"}, Authenticated},
		{"a token of a user", "/", []string{"x-api-key: acme-key", "authorization: Bearer eyJhbGciOi.eyJzdWIi.c2ln"}, Authenticated},
		{"a long token of a user", "/", []string{"x-api-key: acme-key", "authorization: Bearer " + long}, Authenticated},
		{"an empty one", "/?api_key=", []string{"x-api-key: acme-key", "authorization: Bearer", "cookie: key="}, Authenticated},
		{"another scheme", "/", []string{"x-api-key: acme-key", `authorization: Digest username="u", realm="r"`}, Authenticated},

		// If the first key is refused, the others do not matter.
		{"an unknown one first", "/", []string{"x-api-key: unknown", "authorization: Bearer acme-key"}, Unknown},
		{"a disabled one first", "/", []string{"x-api-key: gone-key", "authorization: Bearer acme-key"}, Disabled},

		// An application may read a place that rls cannot read.
		{"several in the second place", "/", []string{"x-api-key: acme-key", "authorization: Bearer hobby-key", "authorization: Bearer token"}, Malformed},
		{"several in the second place, joined", "/", []string{"x-api-key: acme-key", "authorization: Bearer token, Bearer hobby-key"}, Malformed},
		{"more behind it", "/", []string{"x-api-key: acme-key", "authorization: Bearer hobby-key more"}, Malformed},
		{"padded by other white space", "/", []string{"x-api-key: acme-key", "authorization: Bearer hobby-key\u00a0"}, Malformed},
		{"a long one, padded", "/", []string{"x-api-key: acme-key", "authorization: Bearer hobby-key\u00a0" + long}, Malformed},
		{"not base64", "/", []string{"x-api-key: acme-key", "authorization: Basic !" + basic("u:hobby-key")}, Malformed},
		{"a parameter that is there twice", "/?api_key=token&api_key=hobby-key", []string{"x-api-key: acme-key"}, Malformed},
		{"a parameter behind a semicolon", "/?a=b;api_key=hobby-key", []string{"x-api-key: acme-key"}, Malformed},
		{"a cookie that is there twice", "/", []string{"x-api-key: acme-key", "cookie: key=token; key=hobby-key"}, Malformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for way, change := range map[string]func(*Options){
				"without waiting": nil,
				"with waiting":    func(o *Options) { o.Subjects = waitingSource{o.Decider.Rules().Tiers()} },
				"waits for the other": func(o *Options) {
					o.Subjects = &slowSource{Resolver: o.Decider.Rules().Tiers(), slow: o.Secrets.Digest(hobbyKey)}
				},
				"removes them": func(o *Options) { o.RemoveCredential = true },
			} {
				for form, in := range map[string]*authv3.CheckRequest{"joined": ask(tt.path, nil, tt.fields...), "raw": askRaw(tt.path, nil, tt.fields...)} {
					if !utf8.ValidString(strings.Join(tt.fields, "")) {
						continue
					}
					s := newService(t, nil, change)
					b, err := adaptertest.Unary(t, s.Service, []byte(encode(t, in)))
					out := new(authv3.CheckResponse)
					if err != nil || proto.Unmarshal(b, out) != nil {
						t.Fatal(err)
					}
					want := map[Result]int{tt.want: 1}
					if diff := cmp.Diff(want, s.meters.results); diff != "" {
						t.Errorf("%s, %s: counted (-want +got):\n%s", way, form, diff)
					}
					if got := int(out.GetDeniedResponse().GetStatus().GetCode()); tt.want != Authenticated && got != results[tt.want].status {
						t.Errorf("%s, %s: got %d, want %d", way, form, got, results[tt.want].status)
					}
					if subject := out.GetDynamicMetadata().GetFields()["subject"].GetStringValue(); tt.want == Authenticated && subject != "acme" {
						t.Errorf("%s, %s: the subject is %q, want acme", way, form, subject)
					}
				}
				s := newService(t, nil, change)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz", nil)
				r.Header.Set("X-Original-Uri", tt.path)
				for _, f := range tt.fields {
					name, value, _ := strings.Cut(f, ": ")
					r.Header.Add(name, value)
				}
				w := httptest.NewRecorder()
				s.HTTPHandler(http.NotFoundHandler()).ServeHTTP(w, r)
				if w.Code != results[tt.want].status {
					t.Errorf("%s, over HTTP: got %d %s, want %d", way, w.Code, w.Body, results[tt.want].status)
				}
			}
		})
	}
}

// TestAnotherKeyThatCannotBeLookedUp refuses a request if the source cannot find the subject
// of its second key: it may belong to another subject.
func TestAnotherKeyThatCannotBeLookedUp(t *testing.T) {
	s := newService(t, nil, func(o *Options) {
		o.Subjects = &slowSource{Resolver: o.Decider.Rules().Tiers(), silent: o.Secrets.Digest("token")}
	})
	for _, tt := range []struct {
		fields []string
		want   Result
	}{
		{[]string{"x-api-key: acme-key", "authorization: Bearer token"}, Unavailable},
		{[]string{"x-api-key: acme-key", "authorization: Bearer token", "cookie: key=hobby-key"}, Unavailable},
		{[]string{"x-api-key: acme-key", "authorization: Bearer hobby-key", "cookie: key=token"}, Ambiguous},
		{[]string{"x-api-key: gone-key", "authorization: Bearer token"}, Disabled},
		{[]string{"x-api-key: acme-key"}, Authenticated},
	} {
		clear(s.meters.results)
		out := s.check(t, ask("/", map[string]string{"domain": "edge"}, tt.fields...))
		if diff := cmp.Diff(map[Result]int{tt.want: 1}, s.meters.results); diff != "" {
			t.Errorf("%q: counted (-want +got):\n%s", tt.fields, diff)
		}
		if limited := out.GetDynamicMetadata().GetFields()["rule"] != nil; limited != (tt.want == Authenticated) {
			t.Errorf("%q: limits taken: %v", tt.fields, limited)
		}
	}
}

// TestKeysShareTheWait proves that a request with many keys waits for the source no longer
// than with one. Equal keys are looked up once, and keys that were found without waiting are
// not looked up again.
func TestKeysShareTheWait(t *testing.T) {
	fields := []string{"x-api-key: acme-key", "authorization: Bearer a", "cookie: key=b"}
	for _, tt := range []struct {
		name, path string
		slow       string // the key that has an answer only with waiting
		want       []time.Duration
	}{
		{"one after the other", "/?api_key=c", acmeKey, []time.Duration{5, 3, 1, 0}},
		{"the same key again", "/?api_key=a", acmeKey, []time.Duration{5, 3, 1}},
		{"the first without waiting", "/?api_key=c", "a", []time.Duration{5, 3, 1}},
		{"the first three without waiting", "/?api_key=c", "b", []time.Duration{5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := &slowSource{takes: 2 * time.Millisecond}
				s := newService(t, nil, func(o *Options) {
					from.Resolver, from.slow = o.Decider.Rules().Tiers(), o.Secrets.Digest(tt.slow)
					o.Subjects, o.Wait = from, 5*time.Millisecond
				})
				if _, err := adaptertest.Unary(t, s.Service, []byte(encode(t, ask(tt.path, nil, fields...)))); err != nil {
					t.Fatal(err)
				}
				for i := range from.waits {
					from.waits[i] /= time.Millisecond
				}
				if diff := cmp.Diff(tt.want, from.waits); diff != "" {
					t.Errorf("milliseconds that each question could wait (-want +got):\n%s", diff)
				}
			})
		})
	}
}
