package decide

import (
	"reflect"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestForget proves that nothing of a request stays in a Call, also not in the unused
// memory of its slices, and that the next request gets the same answer.
func TestForget(t *testing.T) {
	rs := rules.NewRules(rules.Identity{Secrets: secrets, Tiers: directory(t)})
	for _, r := range []rules.Rule{
		{Domain: "edge", Path: []descriptors.Node{anyOf("api_key"), anyOf("route")}, Name: "both", Terms: per(5, time.Minute), Metric: rules.Metric{Detailed: true}, Storage: rules.Storage{OnError: rules.StoreErrorLocal}},
		{Domain: "edge", Path: []descriptors.Node{anyOf("route")}, Name: "per-route", Terms: per(5, time.Minute)},
	} {
		if err := rs.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	subject := &tier.Subject{ID: "acme", Tier: "free", Extra: &tier.Extra{Overrides: map[string]tier.Override{
		"both": {Limits: []window.Limit{{Hits: 9, Window: time.Minute}}},
	}}}
	d := NewDecider(rs, Options{Store: &recordingStore{}, Local: &recordingStore{}, Meters: counts{}, Log: dropAll})
	c := new(Call)
	for range 2 {
		req := Request{Domain: "edge", Caller: &identity.Caller{Fingerprint: "fingerprint", Answer: tier.Answer{Subject: subject}}, Descriptors: []Descriptor{
			{Entries: descriptors.Descriptor{{Key: "api_key", Value: "fingerprint"}, {Key: "route", Value: "/private"}}, Cost: 1},
			{Entries: descriptors.Descriptor{{Key: "route", Value: "/private"}}, Cost: 1},
		}}
		d.Begin(c, req)
		if _, err := c.Decide(t.Context(), window.MayWait); err != nil {
			t.Fatal(err)
		}
		v := c.Verdict()
		if len(v.Limits) != 2 || v.Limits[0].Limit.Hits != 9 || v.Limits[0].Source != verdict.SourceOverride || v.Limits[1].Limit.Hits != 5 {
			t.Fatalf("limits = %+v, want the subject's own and the rule's", v.Limits)
		}
		c.Forget()
		reusetest.NothingIn(t, "call", reflect.ValueOf(c).Elem())
	}
}

func TestForgetGivesMemoryBack(t *testing.T) {
	c := new(Call)
	c.verdict.Begin(reuse.MaxBytes)
	c.Forget()
	if n := cap(c.verdict.Matches); n != 0 {
		t.Errorf("memory for %d matches is kept, want none", n)
	}
}

// TestCaller: a verdict says who calls whatever limit is decisive.
func TestCaller(t *testing.T) {
	unknown := secrets.Fingerprint("made-up")
	for name, tt := range map[string]struct {
		identity              rules.Identity
		request               *Request
		deny                  uint64 // the limit without room, which is decisive then
		subject, tier, digest string
	}{
		"the limit of the key decides":    {request: request("api_key=acme-key"), subject: "acme", tier: "starter"},
		"another limit allows":            {request: request("remote_address=10.0.0.1", "api_key=acme-key"), subject: "acme", tier: "starter"},
		"another limit denies":            {request: request("remote_address=10.0.0.1", "api_key=acme-key"), deny: 50, subject: "acme", tier: "starter"},
		"two keys of one subject":         {request: request("remote_address=10.0.0.1", "api_key=acme-key", "route=search api_key=acme-new-key"), deny: 50, subject: "acme", tier: "starter"},
		"a consumer by its id":            {request: request("remote_address=10.0.0.1", "consumer=acme"), deny: 50, subject: "acme", tier: "starter"},
		"a consumer that the tiers lack":  {request: request("consumer=nobody"), tier: "free"},
		"no rule asks who calls":          {request: request("remote_address=10.0.0.1")},
		"no rule at all":                  {request: request("nothing=1")},
		"the rule has no limit":           {request: request("open=x", "route=mine", "api_key=hobby-key"), subject: "hobby", tier: "free"},
		"an unknown key":                  {request: request("remote_address=10.0.0.1", "api_key=made-up"), deny: 50, tier: "free", digest: unknown},
		"an unknown key with its own log": {identity: rules.Identity{EachUnknownKey: true}, request: request("api_key=made-up"), tier: "free", digest: unknown},
		"a disabled subject":              {request: request("api_key=gone-key"), tier: "free", digest: secrets.Fingerprint("gone-key")},
		"a rule for a key, without one":   {request: request("route=mine"), tier: "free"},
		"the same, and a subject":         {request: request("route=mine", "consumer=acme"), deny: 2, subject: "acme", tier: "starter"},
		"two subjects, one decides":       {request: request("consumer=acme", "api_key=hobby-key"), deny: 100, subject: "hobby", tier: "free"},
		"two subjects, the other decides": {request: request("consumer=acme", "api_key=hobby-key"), deny: 2, subject: "acme", tier: "starter"},
		"two subjects, none decides":      {request: request("remote_address=10.0.0.1", "consumer=acme", "api_key=hobby-key"), deny: 50},
		"a subject and an unknown key":    {request: request("consumer=acme", "api_key=made-up"), deny: 100, tier: "free"},
		"a limit that came with the key":  {request: limited(request("remote_address=10.0.0.1", "api_key=acme-key")), deny: 50, subject: "acme"},
		"the same, and a rule for it":     {request: limited(request("route=mine", "api_key=acme-key")), subject: "acme", tier: "starter"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.identity.Secrets, tt.identity.Tiers = secrets, directory(t)
			store := &recordingStore{answer: func(c window.Check) window.Decision {
				return window.Decision{Allowed: c.Limit.Hits != tt.deny, Remaining: c.Limit.Hits}
			}}
			c, _ := newDecider(t, testRules(t, tt.identity), store)
			v := decide(t, c, tt.request)
			if v.Allowed != (tt.deny == 0) {
				t.Fatalf("allowed: %v", v.Allowed)
			}
			if v.Subject != tt.subject || v.Tier != tt.tier || v.KeyDigest != tt.digest {
				t.Errorf("subject %q, tier %q, digest %q; want %q, %q, %q", v.Subject, v.Tier, v.KeyDigest, tt.subject, tt.tier, tt.digest)
			}
		})
	}
}

// limited gives the last descriptor of a request a limit of its own.
func limited(req *Request) *Request {
	req.Descriptors[len(req.Descriptors)-1].Override = &window.Limit{Hits: 5, Window: time.Minute}
	return req
}

// TestOrderOfPolicies: a full limit of requests in flight is decisive only if no other wait is
// longer, and one with room only if it is alone.
func TestOrderOfPolicies(t *testing.T) {
	of := func(l rules.Limit, d window.Decision) LimitStatus { return LimitStatus{Limit: l, Decision: d} }
	room := func(remaining uint64) window.Decision {
		return window.Decision{Allowed: true, Remaining: remaining, ResetAfter: time.Second}
	}
	full := func(wait time.Duration) window.Decision {
		return window.Decision{RetryAfter: wait, UnitAfter: wait, ResetAfter: wait}
	}
	for name, tt := range map[string]struct{ stricter, other LimitStatus }{
		"full for long before full in flight":  {of(fixedLimit, full(time.Minute)), of(inFlightLimit, full(time.Hour))},
		"full in flight before full for short": {of(inFlightLimit, full(time.Hour)), of(bucketLimit, full(100*time.Millisecond))},
		"full in flight before room":           {of(inFlightLimit, full(time.Hour)), of(bucketLimit, room(1))},
		"all room before none left in flight":  {of(bucketLimit, room(50)), of(inFlightLimit, room(1))},
		"the smaller share of two in flight":   {of(inFlightLimit, room(1)), of(inFlightLimit, room(2))},
		"the smaller share of a bucket":        {of(bucketLimit, room(5)), of(fixedLimit, room(900))},
	} {
		if !tt.stricter.Stricter(&tt.other) || tt.other.Stricter(&tt.stricter) {
			t.Errorf("%s: not so", name)
		}
	}
}
