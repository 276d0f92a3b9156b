package envoycheck

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

var (
	streamHeader, endHeader = adapter.Kept[adapter.StreamID].Name, adapter.Kept[adapter.StreamEnd].Name
	// bounded is an expression with a default, and with a bound or a pattern, or what is always a number.
	bounded = regexp.MustCompile(`^%[A-Z_]*(BYTES|DURATION|COUNT)[A-Z_]*%$|^%CEL\(.*(<|\.matches\().*\?.*:.*\)%$|^%CEL\(.*\?.*(<|\.matches\().*:.*\)%$`)
	// invented is an expression that ends with a number as the default.
	invented = regexp.MustCompile(`^%CEL\(.*\?.*:\s*[0-9.]+u?\s*\)%$`)
)

// streams checks what limits of requests in flight and budgets need: an id of each stream, its end, and
// costs that Envoy sends.
func (in *input) streams() {
	for _, m := range in.managers {
		for _, f := range m.limits {
			in.metadataOfCall(&f.filter, f.Service.Call)
		}
		for _, a := range m.authorizations {
			in.metadataOfCall(&a.filter, a.Call)
		}
	}
	for _, r := range in.routes {
		in.ends(r)
	}
	for _, s := range in.sends {
		in.costs(s)
	}
	in.crashes()
}

// metadataOfCall finds expressions that end Envoy.
func (in *input) metadataOfCall(f *filter, call envoydump.Call) {
	for _, one := range call.Metadata {
		if strings.Contains(one.Value, "%CEL(") {
			in.report(celInMetadata, f.where(), "The value of %s in initial_metadata has %%CEL()%%: Envoy ends at the first request.", one.Key)
		}
	}
}

// isEnd reports whether a descriptor ends streams.
func (s *sent) isEnd() bool {
	return s.limit.AtEnd && len(s.entries) == 1 && identity.IsEndOfStream(descriptors.Descriptor{{Key: s.entries[0].Key, Value: s.entries[0].Value}})
}

// ends checks a route whose requests hold something until they end.
func (in *input) ends(r *route) {
	asks := func(is func(*sent) bool) *sent {
		if at := slices.IndexFunc(r.sends, is); at >= 0 {
			return r.sends[at]
		}
		return nil
	}
	var (
		rule *Rule
		by   *filter
		call envoydump.Call
	)
	if s := asks(func(s *sent) bool { return !s.limit.AtEnd && s.holds() != nil }); s != nil {
		rule, by, call = s.holds(), &s.filter.filter, s.filter.Service.Call
	}
	end := asks((*sent).isEnd)
	if at := slices.IndexFunc(r.manager.authorizations, func(a *authorizationFilter) bool { return !r.authorizationOff(a) }); at >= 0 && by == nil && end != nil && r.context()["domain"] {
		a := r.manager.authorizations[at] // the descriptors are hidden
		by, call = &a.filter, a.Call
	}
	switch {
	case by == nil:
		return
	case end == nil:
		in.report(noEnd, r.where, "Requests of this route hold something of the %s until they end, and Envoy reports no end: it is free only after hold.", rule)
		return
	case end.filter.at >= by.at:
		in.report(endBehind, end.filter.where(), "The filter reports ends, and is not before %s. If a client leaves while that waits for rls, Envoy does not report the end.", by.Name)
	}
	in.named(by, call, streamHeader)
	in.named(&end.filter.filter, end.filter.Service.Call, streamHeader)
	in.named(&end.filter.filter, end.filter.Service.Call, endHeader)
	in.longest(r, rule)
}

// named finds calls without an entry in their metadata.
func (in *input) named(f *filter, call envoydump.Call, name string) {
	if !slices.ContainsFunc(call.Metadata, func(one envoydump.KeyValue) bool { return strings.EqualFold(one.Key, name) }) {
		in.report(streamNotNamed, f.where(), "The filter does not send %s in initial_metadata, so rls does not know which stream has ended.", name)
	}
}

// holds returns the rule because of which a request holds something until its end. Nil: none.
func (s *sent) holds() *Rule {
	if at := slices.IndexFunc(s.rules, func(r *Rule) bool { return r.Holds }); at >= 0 {
		return s.rules[at]
	}
	return nil
}

// longest compares how long a request may take with how long it holds something.
func (in *input) longest(r *route, rule *Rule) {
	if rule == nil || rule.Hold == 0 {
		return
	}
	text := r.manager.HTTP.MaxStream
	if r.Action.MaxStream.Duration != "" {
		text = r.Action.MaxStream.Duration
	}
	switch longest, err := time.ParseDuration(text); {
	case text != "" && err != nil:
		in.notRead("max_stream_duration of %s", r.where)
	case longest == 0:
		in.report(holdShort, r.where, "Nothing bounds how long a request takes, and the %s holds what it has for %v.", rule, rule.Hold)
	case longest > rule.Hold:
		in.report(holdShort, r.where, "A request may take %v, and the %s holds what it has for %v.", longest, rule, rule.Hold)
	}
}

// costs finds costs that Envoy drops or makes up, and entries that are gone at the end.
func (in *input) costs(s *sent) {
	if s.limit.AtEnd {
		for _, e := range s.entries {
			for _, removed := range [][]string{s.route.Removed, s.route.host.Removed, s.route.manager.table.Removed} {
				if e.of.Header != "" && slices.ContainsFunc(removed, func(h string) bool { return strings.EqualFold(h, e.of.Header) }) {
					in.report(removedAtEnd, s.route.where, "The route removes the header %s before the end, so %s is never sent, and nothing is settled by it.", e.of.Header, s)
				}
			}
		}
	}
	if s.limit.Cost == nil || s.limit.Cost.Format == "" || s.ofRoute {
		return
	}
	format := s.limit.Cost.Format
	switch {
	case s.limit.AtEnd && s.holds() != nil && invented.MatchString(format):
		in.report(costInvented, s.route.where, "The cost %s of %s has a default, which is settled if the true cost is unknown.", format, s)
	case !s.limit.AtEnd && !bounded.MatchString(format) && !clientCostFormat.MatchString(format):
		in.report(costUnbounded, s.route.where, "The cost %s of %s may be no number from 0 to 1000000000. Envoy then leaves the descriptor out, and the request passes.", format, s)
	}
}

// crashes finds versions of Envoy that can crash at the end of a request (CVE-2026-26330).
func (in *input) crashes() {
	v := in.Version
	if v[0] != 1 || v[1] > 37 {
		return
	}
	if mended, ok := map[int]int{34: 13, 35: 8, 36: 5, 37: 1}[v[1]]; ok && v[2] >= mended {
		return
	}
	if at := slices.IndexFunc(in.sends, func(s *sent) bool { return s.limit.AtEnd }); at >= 0 {
		s := in.sends[at]
		f := in.report(envoyCrashes, s.filter.where(), "Envoy %d.%d.%d can crash if a call of apply_on_stream_done cannot be sent (CVE-2026-26330).", v[0], v[1], v[2])
		if !slices.ContainsFunc(in.sends, func(s *sent) bool { return s.limit.AtEnd && !s.filter.ends }) {
			f.Severity = Note // no such crash was seen with a filter that only reports ends
		}
	}
}
