// Package metricstest describes every metric of the service, for the reference and for tests of dashboards
// and alerts.
package metricstest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// A Description says what a metric means. The reference is made of them.
type Description struct {
	Name, Help string
	Labels     []string
	// Values are the values of one label: the value, and ": " with its meaning, unless the value says it.
	// Nil: Help explains them, or the configuration has them.
	Values []string
}

// labelValues has the values of labels that Help has no room for.
var labelValues = map[string][]string{
	"slidegate_decisions_total": {
		"allowed", "denied", "refunded", "unlimited",
		"never: the cost is above the limit",
		"repeated: a repeated idempotency key; free",
		"not_charged: another rule denied the request",
		"passed_over: quota_mode: another rule had quota left",
		"replaced: another rule replaces it",
		"error: the store failed, and on_store_error decided",
		"no_rule: no rule matches",
	},
	"slidegate_budget_requests_total": {
		"reserved", "settled",
		"unknown: it ended without a cost; on_unknown decided",
		"above_estimate: it cost more than it had reserved",
		"unreserved: it cost something and had reserved nothing",
		"expired: it had not ended after hold; its estimate was spent",
		"retried: Envoy tried it more than once",
	},
	"slidegate_authorizations_total": {
		"authenticated", "anonymous", "missing", "malformed", "unknown", "disabled", "oversized", "limited",
		"ambiguous: API keys of two customers",
		"unavailable: the customer source failed",
		"undecided: the store failed",
		"misconfigured: the route is configured wrongly; see the log",
	},
	"slidegate_tiers_answers_total": {
		"hit: a cached record",
		"hit_unknown: a cached record: the key belongs to no customer",
		"asked: the source, while the request waited",
		"stale: an expired record, because the source fails",
		"unavailable: no record, and the source fails: tiers.on_error decides",
	},
	"slidegate_tiers_lookups_total": {
		"found", "unknown", "timeout", "error",
		"bad_record: a malformed record; see the log",
		"limited: not sent: more keys wait than the source answers",
		"refused: not sent: the source fails",
	},
	"slidegate_grpc_goaways_total": {
		"age", "drain",
		"silent: the client did not answer a ping",
		"slow: the client did not read its answers",
		"timeout: the client opened a connection and sent nothing",
		"pings: pings more often than every 10 s",
		"flood: too many frames that are not calls",
		"protocol: the client broke HTTP/2, or TLS failed",
		"bug: report it",
	},
}

// Descriptions describes every metric of the service, in the order of their names. The metrics of
// the Go runtime and of the process are not among them.
func Descriptions() []Description {
	var r recorder
	m := metrics.New(&r, metrics.Options{})
	metrics.Memory(&r, nil)
	metrics.Store(&r, nil)
	metrics.Local(&r, nil)
	metrics.Tiers(&r, nil, nil)
	metrics.NewTransport(&r)
	metrics.XDS(&r, nil)
	m.Comparisons(&r)
	metrics.Webhook(&r)
	metrics.Authorization(&r)
	r.MustRegister(metrics.SpansLost())
	slices.SortFunc(r.all, func(a, b Description) int { return cmp.Compare(a.Name, b.Name) })
	return r.all
}

// A recorder is a registry that keeps what collectors say of themselves. It never collects.
type recorder struct{ all []Description }

func (r *recorder) Register(c prometheus.Collector) error { r.MustRegister(c); return nil }

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for d := range descs {
			if one := describe(d); strings.HasPrefix(one.Name, "slidegate_") {
				r.all = append(r.all, one)
			}
		}
	}
}

// described matches the text of a prometheus.Desc, which has no other way to read it.
var described = regexp.MustCompile(`^Desc\{fqName: ("[^"]+"), help: ("(?:[^"\\]|\\.)*"), .*?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// describe reads a Desc. It panics if the library writes it in another form.
func describe(d *prometheus.Desc) Description {
	m := described.FindStringSubmatch(d.String())
	if m == nil {
		panic(fmt.Sprintf("unknown form of a description: %s", d))
	}
	name, err := strconv.Unquote(m[1])
	help, err2 := strconv.Unquote(m[2])
	if err != nil || err2 != nil {
		panic(fmt.Sprintf("unknown form of a description: %s", d))
	}
	one := Description{Name: name, Help: help, Values: labelValues[name]}
	for pair := range strings.SplitSeq(m[3], ",") {
		if label, _, ok := strings.Cut(pair, "="); ok {
			one.Labels = append(one.Labels, label)
		}
	}
	if m[4] != "" {
		one.Labels = append(one.Labels, strings.Split(m[4], ",")...)
	}
	return one
}
