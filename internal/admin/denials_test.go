package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A denying is an API whose instance keeps ten denials.
type denying struct {
	*insight.Insight
	*api
	rule *policy.Rule
}

func newDenying(t *testing.T) *denying {
	t.Helper()
	store := memstore.New(memstore.Options{SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	rules := policy.NewRules(policy.Identity{Secrets: tier.NewSecrets([]string{"api_key"}, nil)})
	err := rules.Add(policy.Rule{
		Domain: "edge", Path: []descriptors.Node{{Key: "user", AnyValue: true}}, Name: "per-user", Subject: "user",
		Terms: policy.Terms{Limits: []policy.Limit{{Limit: window.Limit{Hits: 10, Window: time.Minute}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	in := insight.New(insight.Options{
		Instance: "test", Denials: 10, PerSecond: 100_000, Rules: func() *policy.Rules { return rules }, Keeper: store, Store: "memory",
		Log: zap.NewNop(), Audit: zap.NewNop(),
	})
	t.Cleanup(func() { _ = in.Close() })
	return &denying{in, &api{Pages{Insight: in, Access: testAccess(true)}}, rules.All()[0]}
}

// deny records a denial of a user.
func (s *denying) deny(user string) {
	req := &policy.Request{Domain: "edge", Descriptors: []policy.Descriptor{{Entries: descriptors.Descriptor{{Key: "user", Value: user}}, Cost: 1}}}
	v := &policy.Verdict{Shadowed: -1, Limits: []policy.LimitStatus{{Rule: s.rule, Limit: s.rule.Terms.Limits[0], Cost: 1}}}
	s.Denied(req, v, &v.Limits[0])
	s.Denials(insight.Filter{Limit: 1}) // moves it into the ring
}

// TestLongList asks for more denials than are kept, and for few. The list needs as much memory as one
// denial.
func TestLongList(t *testing.T) {
	s := newDenying(t)
	for n := range 15 {
		s.deny(fmt.Sprint("u", n))
	}
	for query, want := range map[string]string{
		"":                           "u14 u13 u12 u11 u10 u9 u8 u7 u6 u5",
		"limit=100000":               "u14 u13 u12 u11 u10 u9 u8 u7 u6 u5",
		"limit=2":                    "u14 u13",
		"limit=100000&subject=u7":    "u7",
		"limit=5&subject=other":      "",
		"limit=100000&since=1h&x=%2": "400",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/denials?"+query, nil)
		r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4711"
		mux := http.NewServeMux()
		s.serve(mux)
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			if want != fmt.Sprint(w.Code) {
				t.Errorf("%s: got %d %s", query, w.Code, w.Body)
			}
			continue
		}
		var got insight.Denials
		if err := strictJSON(w.Body.Bytes(), &got); err != nil || got.Denials == nil {
			t.Errorf("%s: %v: %s", query, err, w.Body)
			continue
		}
		var users []string
		for _, d := range got.Denials {
			users = append(users, d.Subject)
		}
		if list := strings.Join(users, " "); list != want || got.Seen != 15 || got.Kept != 10 || got.Instance != "test" {
			t.Errorf("%s: got %s, want %s: %+v", query, list, want, got)
		}
	}
}
