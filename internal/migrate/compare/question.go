package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// A question is a call to compare, with what its decision leaves to compare. It keeps nothing
// of the memory that the next call reuses.
type question struct {
	encoded     string
	at          time.Time // of the decision
	ours        Answer
	decisive    int // index in descriptors; -1: no rule applies
	descriptors []described
	limits      []limit // in the order of the descriptors
}

type described struct {
	hash uint64
	rule *rules.Rule // nil: none
}

type limit struct {
	descriptor int
	limit      rules.Limit
	denies     bool
	never      bool // no hit has to expire: the cost is above the limit, or no store decided
	remaining  uint64
	retryAfter time.Duration
}

// newQuestion returns a question of the time at. v is nil if there was no decision.
func newQuestion(at time.Time, encoded string, req *decide.Request, v *decide.Verdict) *question {
	q := &question{encoded: encoded, at: at, ours: Failed, decisive: -1, descriptors: make([]described, len(req.Descriptors))}
	for i := range req.Descriptors {
		entries := req.Descriptors[i].Entries
		if v != nil {
			entries = v.Matches[i].Limited(entries)
		}
		q.descriptors[i].hash = hashOf(req.Domain, entries)
	}
	if v == nil {
		return q
	}
	if q.ours = OK; !v.Allowed {
		q.ours = OverLimit
	}
	for i := range v.Matches {
		q.descriptors[i].rule = v.Matches[i].Rule
	}
	q.limits = make([]limit, len(v.Limits))
	for i := range v.Limits {
		s := &v.Limits[i]
		q.descriptors[s.Descriptor].rule = s.Rule // also that of a limit in the request
		q.limits[i] = limit{
			descriptor: s.Descriptor, limit: s.Limit, denies: s.MayDeny() && !s.Decision.Allowed, never: s.Decision.Never || s.DeniedUndecided(),
			remaining: s.Decision.Remaining, retryAfter: s.Decision.RetryAfter,
		}
	}
	if v.Decisive >= 0 {
		q.decisive = v.Limits[v.Decisive].Descriptor
	} else {
		q.decisive = slices.IndexFunc(q.descriptors, func(d described) bool { return d.rule != nil })
	}
	return q
}

// subject returns the index of the descriptor that a difference is about: the one that this
// service denies, else the one that the other service denies, else the decisive one. It is -1
// if no descriptor is.
func (q *question) subject(a *answer) int {
	if q.ours != OverLimit {
		for i, s := range a.statuses {
			if s.code == codeOverLimit && i < len(q.descriptors) {
				return i
			}
		}
	}
	return q.decisive
}

// rule returns the domain and the name of the rule of the subject, or empty texts. So they
// are always names of the configuration.
func (q *question) rule(a *answer) (domain, rule string) {
	if at := q.subject(a); at >= 0 && q.descriptors[at].rule != nil {
		r := q.descriptors[at].rule
		return r.Domain, r.Name
	}
	return "", ""
}

// limitOf returns the strictest limit of a descriptor, or nil.
func (q *question) limitOf(descriptor int) *limit {
	var found *limit
	for i := range q.limits {
		l := &q.limits[i]
		if l.descriptor == descriptor && (found == nil || l.denies && !found.denies) {
			found = l
		}
	}
	return found
}

// sampled reports whether the calls with the descriptors of a request are compared.
func sampled(req *decide.Request, fraction float64) bool {
	if fraction >= 1 {
		return true
	}
	all := make([]descriptors.Descriptor, len(req.Descriptors))
	for i := range all {
		all[i] = req.Descriptors[i].Entries
	}
	return float64(hashOf(req.Domain, all...)>>11)/(1<<53) < fraction
}

// hashOf returns a hash that is the same in every instance.
func hashOf(domain string, all ...descriptors.Descriptor) uint64 {
	h := xxhash.New()
	fmt.Fprintf(h, "%q%q", domain, all)
	return h.Sum64()
}

// maxShown bounds what a log line shows of a descriptor, in bytes.
const maxShown = 256

// show returns a descriptor of an encoded request as text, with *** for values that secrets
// hides, and the domain of the request. descriptor may be -1. Both are empty if the request has texts
// that are not UTF-8.
func show(encoded string, descriptor int, secrets *tier.Secrets) (domain, text string) {
	var r rlsv3.RateLimitRequest
	if proto.Unmarshal([]byte(encoded), &r) != nil {
		return "", ""
	}
	var out []string
	if all := r.GetDescriptors(); descriptor >= 0 && descriptor < len(all) {
		for _, e := range all[descriptor].GetEntries() {
			value := brief(e.GetValue())
			if secrets.Hides(e.GetKey()) {
				value = "***"
			}
			out = append(out, brief(e.GetKey())+"="+value)
		}
	}
	return brief(r.GetDomain()), brief(strings.Join(out, ","))
}

// brief returns the beginning of a text as UTF-8, in separate memory.
func brief(text string) string {
	if len(text) > maxShown {
		text = text[:maxShown]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.Clone(strings.ToValidUTF8(text, "\uFFFD"))
}

func (l *limit) describe() string { return describeLimit(l.limit.Hits, l.limit.Window) }

func (s *descriptorStatus) describe() string { return describeLimit(s.hits, s.window) }

func describeLimit(hits uint64, length time.Duration) string {
	if length == 0 {
		return strconv.FormatUint(hits, 10)
	}
	return strconv.FormatUint(hits, 10) + " per " + rules.FormatWindow(length)
}
