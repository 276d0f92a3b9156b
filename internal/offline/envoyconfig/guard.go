package envoyconfig

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Guard is the limit of a rule that Envoy applies, too: to each value of one entry.
type Guard struct {
	Rule  string
	Key   string // of the entry
	Limit window.Limit
}

// guarded are the entries that all routes of the shapes send, with the action that makes each of them.
var guarded = map[string]string{
	"remote_address":        "remote_address: {}",
	"masked_remote_address": "masked_remote_address: {v4_prefix_mask_len: 32, v6_prefix_mask_len: 64}",
	"api_key":               "request_headers: {header_name: x-api-key, descriptor_key: api_key}",
}

// Guards returns the guards of a domain. A rule has one if the guard can never be below its limit: its
// descriptor has one entry, its limits deny, none is that of a tier, and no other rule replaces it.
// customers is true if there are customers, who may have overrides.
func Guards(rs *rules.Rules, domain string, customers bool) (out []Guard) {
	if rs.ObservesAll() {
		return nil
	}
	all, replaced := rs.All(), make(map[string]bool)
	for _, r := range all {
		for _, name := range r.Replaces {
			replaced[name] = true
		}
	}
	for _, r := range all {
		if r.Domain != domain || len(r.Path) != 1 || !r.Path[0].AnyValue || guarded[r.Path[0].Key] == "" || r.Path[0].Key == "api_key" && customers ||
			len(r.ByTier) > 0 || r.Subject != "" || r.Terms.Observe > 0 || r.Alternative() || r.Charge.Always || r.HasOneLog(0) || replaced[r.WrittenName()] {
			continue
		}
		best := Guard{Rule: r.Name, Key: r.Path[0].Key}
		for _, l := range r.Terms.Limits {
			if fits(l.Limit) && (best.Limit.Window == 0 || perSecond(l.Limit) < perSecond(best.Limit)) {
				best.Limit = l.Limit
			}
		}
		if best.Limit.Window > 0 {
			out = append(out, best)
		}
	}
	return out
}

// fill is the smallest interval in which Envoy fills a bucket. All others are multiples of it.
const fill = 50 * time.Millisecond

// fits reports whether a bucket of Envoy is never below the limit. Limits of fixed windows admit twice
// their hits at once.
func fits(l window.Limit) bool {
	return (l.Policy == window.Sliding || l.Policy == window.TokenBucket) && l.Window%fill == 0 && l.Hits > 0 && l.Hits <= math.MaxUint32/2
}

// refill is how many hits come back in each window.
func refill(l window.Limit) uint64 {
	if l.Policy == window.TokenBucket {
		return uint64(l.Rate)
	}
	return l.Hits
}

func perSecond(l window.Limit) float64 { return float64(refill(l)) / l.Window.Seconds() }

const guardFilter = `          # A guard against floods: Envoy itself refuses an address or a key that sends more than its limit. What the
          # guard lets pass, rls decides. The guard has the full limit and a tenth more, so it refuses nothing that
          # sends less. It counts requests to this Envoy alone, also those that rls denies. Its 429 has no Retry-After.
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: guard
              filter_enabled: {default_value: {numerator: 100, denominator: HUNDRED}}
              filter_enforced: {default_value: {numerator: 100, denominator: HUNDRED}}
              rate_limited_as_resource_exhausted: true
              # For requests without one of the entries below: practically without a limit.
              token_bucket: {max_tokens: 4294967295, tokens_per_fill: 4294967295, fill_interval: 0.05s}
              always_consume_default_token_bucket: false
              # Of each entry. Beyond it, the values that were not seen for longest have a full bucket again.
              max_dynamic_descriptors: 10000
`

// guard puts a filter with guards in front of the ratelimit filter.
func guard(text string, guards []Guard) (string, error) {
	at := strings.Index(text, "          - name: envoy.filters.http.ratelimit\n            typed_config:\n")
	if at < 0 || strings.Contains(text, "apply_on_stream_done: true") {
		return "", errors.New("--guard: this shape cannot have it; use ratelimit, sidecar, tls or authorization")
	}
	for { // comments belong to the filter
		line := strings.LastIndexByte(text[:at-1], '\n') + 1
		if !strings.HasPrefix(text[line:at], "          #") {
			break
		}
		at = line
	}
	actions, buckets := "              rate_limits:\n", "              descriptors:\n"
	for _, g := range guards {
		more := refill(g.Limit)
		actions += fmt.Sprintf("              - actions: [{%s}]\n", guarded[g.Key])
		buckets += fmt.Sprintf("              # %s\n              - entries: [{key: %s}]\n                token_bucket: {max_tokens: %d, tokens_per_fill: %d, fill_interval: %gs}\n",
			g.Rule, g.Key, g.Limit.Hits, more+(more+9)/10, g.Limit.Window.Seconds())
	}
	return text[:at] + guardFilter + actions + buckets + text[at:], nil
}
