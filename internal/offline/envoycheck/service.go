package envoycheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// RulesOf returns the rules of a set, with the location of each.
func RulesOf(set *rules.Rules, at func(i int) string) (all []Rule) {
	for i, r := range set.All() {
		one := Rule{Domain: r.Domain, Name: r.Name, Path: r.Path, At: at(i)}
		one.add(&r.Terms, set.ObservesAll())
		for _, terms := range r.ByTier {
			one.add(&terms, set.ObservesAll())
		}
		all = append(all, one)
	}
	return all
}

func (r *Rule) add(t *rules.Terms, observed bool) {
	if observed {
		t = &rules.Terms{Limits: t.Limits, Observe: 1}
	}
	r.Limits = r.Limits || len(t.Limits) > 0 && t.Observe < 1
	if len(t.Limits) > 0 && t.Observe > 0 {
		r.Observed = fmt.Sprintf("%.4g%% observed", 100*t.Observe)
	}
}

// Observe adds what a running service says of itself.
func (s *Service) Observe(state *insight.State) {
	s.StoreTimeout = time.Duration(state.Latency.Deadline * float64(time.Second))
	if slices.ContainsFunc(state.Config.Notes, func(note string) bool { return strings.HasPrefix(note, "rules.shadow_mode:") }) {
		for i := range s.Rules {
			s.Rules[i].Limits, s.Rules[i].Observed = false, "100% observed"
		}
	}
}

var observedText = regexp.MustCompile(`\((\S+% observed)\)$`)

// RulesFrom returns the rules that a running service describes.
func RulesFrom(described []admin.Rule) (all []Rule) {
	for i := range described {
		d := &described[i]
		one := Rule{Domain: d.Domain, Name: d.Name}
		if d.File != "" {
			one.At = fmt.Sprintf("%s:%d", d.File, d.Line)
		}
		for _, e := range d.Entries {
			key, value, fixed := strings.Cut(e, "=")
			// The value of an API key is hidden.
			n := descriptors.Node{Key: key, Value: value, AnyValue: !fixed || value == "***"}
			if n.AnyValue {
				n.Value = ""
			}
			n.Pattern = strings.Contains(n.Value, "*")
			one.Path = append(one.Path, n)
		}
		for _, limit := range d.Limits {
			_, terms, ofTier := strings.Cut(limit, ": ")
			if !ofTier {
				terms = limit
			}
			part := ""
			if m := observedText.FindStringSubmatch(terms); m != nil {
				part = m[1]
				one.Observed = part
			}
			one.Limits = one.Limits || terms != "unlimited" && terms != "no limit" && part != "100% observed"
		}
		all = append(all, one)
	}
	return all
}
