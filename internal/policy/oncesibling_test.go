package policy

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestOnceSibling: a client that sends an idempotency key cannot slip past a rule that does not charge once, where Envoy
// sends the entry for all rules.
func TestOnceSibling(t *testing.T) {
	rs := NewRules(Identity{Secrets: secrets})
	addOnce(t, rs, with(rule("orders", per(5, time.Hour), one("route", "orders"), anyOf("user")), once))
	addOnce(t, rs, rule("search", per(5, time.Hour), one("route", "search"), anyOf("user")))
	store := &recordingStore{}
	decider, _ := newDecider(t, rs, store)
	var logs []string
	for _, text := range []string{"route=search user=k", "route=search user=k attempt=1"} {
		decide(t, decider, &Request{Domain: "edge", Descriptors: []Descriptor{d(text)}})
		if len(store.checks) != 1 || store.checks[0].Once != (window.Once{}) {
			t.Fatalf("%s: got the checks %+v, want one that is charged each time", text, store.checks)
		}
		logs = append(logs, store.checks[0].Key)
		store.checks = store.checks[:0]
	}
	if logs[0] != logs[1] {
		t.Errorf("got the logs %q, want one", logs)
	}
}
