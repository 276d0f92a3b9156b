package decide

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// TestCallerInfo checks whom a denial is of. Only values of entries that the rules name are shown, and
// request ids only if they are UUIDs.
func TestCallerInfo(t *testing.T) {
	const known, stranger, uuid = "acme-key", "stranger-key-1", "3f1C6d0e-8a52-9c1b-b7a4-0d5e2f7a9b10"
	rs := testRules(t, rules.Identity{Secrets: secrets, Tiers: directory(t), EachUnknownKey: true})
	rule := func(name string) *rules.Rule {
		for _, r := range rs.All() {
			if r.Name == name {
				return r
			}
		}
		t.Fatalf("no rule %s", name)
		return nil
	}
	digest := secrets.Digest(stranger)
	for name, tc := range map[string]struct {
		rule    string
		id      string
		entries []string
		want    identity.CallerInfo
	}{
		"address":   {"per-address", "", []string{"remote_address=192.0.2.7"}, identity.CallerInfo{Address: "192.0.2.0/24"}},
		"mapped":    {"per-address", "", []string{"remote_address=::ffff:192.0.2.7"}, identity.CallerInfo{Address: "192.0.2.0/24"}},
		"IPv6":      {"per-address", "", []string{"remote_address=2001:db8:1:2::3"}, identity.CallerInfo{Address: "2001:db8:1::/48"}},
		"masked":    {"per-address", "", []string{"masked_remote_address=10.0.0.0/8"}, identity.CallerInfo{Address: "10.0.0.0/8"}},
		"nonsense":  {"per-address", "", []string{"remote_address=nonsense"}, identity.CallerInfo{}},
		"stranger":  {"per-key", uuid, []string{"api_key=" + stranger}, identity.CallerInfo{Digest: digest, RequestID: uuid}},
		"route":     {"per-address", "", []string{"remote_address=192.0.2.7", "generic_key=g", "path=/p", "route=r?q=1#f"}, identity.CallerInfo{Address: "192.0.2.0/24", Route: "r"}},
		"unnamed":   {"per-address", "", []string{"method=GET path=/p", "generic_key=" + known}, identity.CallerInfo{}},
		"entry id":  {"per-address", "", []string{"request_id=" + uuid}, identity.CallerInfo{RequestID: uuid}},
		"not an id": {"per-key", stranger, []string{"api_key=" + stranger, "request_id=" + uuid}, identity.CallerInfo{Digest: digest}},
		"almost":    {"per-address", strings.ReplaceAll(uuid, "-", "_"), []string{"x-request-id=g" + uuid[1:]}, identity.CallerInfo{}},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(tc.entries...)
			req.ID = tc.id
			s := LimitStatus{Rule: rule(tc.rule)}
			if got := s.Caller(req); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	t.Run("caller", func(t *testing.T) {
		req := request("route=/x")
		req.Caller = &identity.Caller{Fingerprint: secrets.Fingerprint(known), Answer: tier.Answer{Subject: directory(t).ByID("acme")}}
		s := LimitStatus{Rule: rule("per-address")}
		if got, want := s.Caller(req), (identity.CallerInfo{Subject: "acme", Route: "/x"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
