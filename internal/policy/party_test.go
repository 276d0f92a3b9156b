package policy

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/tier"
)

// TestParty checks whom a denial is of, and that no text is an API key or has one in it, however
// the key is spelled and wherever the client puts it.
func TestParty(t *testing.T) {
	const known, stranger = "acme-key", "stranger-key-1"
	rs := testRules(t, Identity{Secrets: secrets, Tiers: directory(t), EachUnknownKey: true})
	rule := func(name string) *Rule {
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
		want    Party
	}{
		"address":   {"per-address", "", []string{"remote_address=192.0.2.7"}, Party{Address: "192.0.2.0/24"}},
		"mapped":    {"per-address", "", []string{"remote_address=::ffff:192.0.2.7"}, Party{Address: "192.0.2.0/24"}},
		"IPv6":      {"per-address", "", []string{"remote_address=2001:db8:1:2::3"}, Party{Address: "2001:db8:1::/48"}},
		"masked":    {"per-address", "", []string{"masked_remote_address=10.0.0.0/8"}, Party{Address: "10.0.0.0/8"}},
		"nonsense":  {"per-address", "", []string{"remote_address=nonsense"}, Party{}},
		"stranger":  {"per-key", "r-1", []string{"api_key=" + stranger}, Party{Digest: digest, RequestID: "r-1"}},
		"route":     {"per-address", "", []string{"remote_address=192.0.2.7", "generic_key=g", "path=/p", "route=r"}, Party{Address: "192.0.2.0/24", Route: "r"}},
		"path":      {"per-address", "", []string{"method=GET path=/p?q=1#f"}, Party{Route: "GET /p"}},
		"entry id":  {"per-address", "", []string{"request_id=r-2"}, Party{RequestID: "r-2"}},
		"id is key": {"per-key", stranger, []string{"api_key=" + stranger}, Party{Digest: digest}},
		"bearer":    {"per-key", "Bearer " + stranger, []string{"api_key=" + stranger, "route=" + stranger}, Party{Digest: digest}},
		"in a path": {"per-key", "", []string{"api_key=" + stranger, "path=/v1/" + stranger + "/x"}, Party{Digest: digest}},
		"doubled":   {"per-key", stranger + "," + stranger, []string{"api_key=" + stranger, "path=/" + stranger + "&" + stranger}, Party{Digest: digest}},
		"of others": {"per-address", "id=" + known, []string{"remote_address=192.0.2.7", "route=/x/" + known}, Party{Address: "192.0.2.0/24"}},
		"named":     {"per-address", "req?x=1&access_token=t", []string{"remote_address=192.0.2.7", "route=/x;API%5FKEY=anything"}, Party{Address: "192.0.2.0/24"}},
		"no secret": {"per-address", "id?page=2&max_tokens=9", []string{"route=/x/key=1"}, Party{RequestID: "id?page=2&max_tokens=9", Route: "/x/key=1"}},
		"long":      {"per-address", strings.Repeat("x", 600), []string{"route=" + strings.Repeat("/x", 400)}, Party{}},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(tc.entries...)
			req.ID = tc.id
			s := LimitStatus{Rule: rule(tc.rule)}
			if got := s.Party(req); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	t.Run("caller", func(t *testing.T) {
		req := request("route=/x")
		req.Caller = &Caller{Fingerprint: secrets.Fingerprint(known), Answer: tier.Answer{Subject: directory(t).ByID("acme")}}
		s := LimitStatus{Rule: rule("per-address")}
		if got, want := s.Party(req), (Party{Subject: "acme", Route: "/x"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
