package envoycheck

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Service is what is known of rls.
type Service struct {
	Rules []Rule
	// StoreTimeout is how long rls waits for its store. Zero: unknown.
	StoreTimeout time.Duration
	// Settings are those of the process that Envoy calls. Nil: unknown.
	Settings *settings.Settings
	// Denied is how many requests rls has denied since it started. Zero: none, or unknown.
	Denied uint64
	// Carried are the keys of the limits that tiers carry. Nil: unknown.
	Carried []string
}

// A Rule is a rule of the service.
type Rule struct {
	Domain, Name string
	Path         []descriptors.Node
	// At is the file and the line, and may be empty.
	At string
	// Limits is true if the rule denies, and Observed says which part of it only observes.
	Limits   bool
	Observed string
	// Holds is true if a request holds something until its end: a slot, or what it has reserved. Hold is
	// for how long at most; zero: unknown.
	Holds bool
	Hold  time.Duration
}

// String returns the name of the rule, with its file and line.
func (r *Rule) String() string {
	if r.At == "" {
		return "rule " + r.Name
	}
	return fmt.Sprintf("rule %s (%s)", r.Name, r.At)
}

// Load takes the rules of files. of are the settings for tiers and policies.
func (s *Service) Load(in *config.Input, of settings.Settings) error {
	g, err := in.Load(of)
	if err != nil {
		return err
	}
	if t := g.Rules.Tiers(); t != nil && of.Tiers.Source == settings.TiersFile {
		s.Carried = t.Carried()
	}
	for i, r := range g.Rules.All() {
		one := Rule{Domain: r.Domain, Name: r.Name, Path: r.Path, At: g.Locations[i].String()}
		one.add(&r.Terms, g.Rules.ObservesAll())
		for _, terms := range r.ByTier {
			one.add(&terms, g.Rules.ObservesAll())
		}
		s.Rules = append(s.Rules, one)
	}
	return nil
}

func (r *Rule) add(t *rules.Terms, observed bool) {
	if observed {
		t = &rules.Terms{Limits: t.Limits, Observe: 1}
	}
	r.Limits = r.Limits || len(t.Limits) > 0 && t.Observe < 1
	for _, l := range t.Limits {
		if l.Policy == window.InFlight {
			r.holds(l.Window)
		}
		if l.Budget != nil {
			r.holds(l.Budget.Hold)
		}
	}
	if len(t.Limits) > 0 && t.Observe > 0 {
		r.Observed = fmt.Sprintf("%.4g%% observed", 100*t.Observe)
	}
}

// holds keeps the shortest time for which a request holds something.
func (r *Rule) holds(d time.Duration) {
	if !r.Holds || d < r.Hold {
		r.Holds, r.Hold = true, d
	}
}

// Ask takes the rules of a running service, and what it says of itself. All instances must have the same rules.
func (s *Service) Ask(ctx context.Context, ask *client.Client) error {
	all, states := client.AskAll(ctx, ask, ask.Rules), client.AskAll(ctx, ask, ask.State)
	whole, _ := ask.Denials(ctx, url.Values{"shadow": {"no"}}, 1)
	if err := cmp.Or(client.Failed(all), client.Failed(states), client.Failed(whole)); err != nil {
		return err
	}
	first := all[0].Value
	for _, one := range all {
		if !reflect.DeepEqual(one.Value.Rules, first.Rules) {
			return fmt.Errorf("%s and %s have other rules: check them one by one", all[0].From, one.From)
		}
	}
	if len(first.Rules) < first.Found {
		return fmt.Errorf("rls has %d rules, and check reads at most %d: give --rules", first.Found, len(first.Rules))
	}
	s.Rules = rulesFrom(first.Rules)
	for _, one := range states {
		s.add(one.Value)
	}
	for _, one := range whole {
		if len(one.Value.Denials) > 0 {
			s.Denied += one.Value.Seen
		}
	}
	return nil
}

// add adds what a running service says of itself.
func (s *Service) add(state *glance.State) {
	s.Carried = state.Config.Carried
	s.StoreTimeout = max(s.StoreTimeout, time.Duration(state.Latency.Deadline*float64(time.Second)))
	if slices.ContainsFunc(state.Config.Notes, func(note string) bool { return strings.HasPrefix(note, "rules.shadow_mode:") }) {
		for i := range s.Rules {
			s.Rules[i].Limits, s.Rules[i].Observed = false, "100% observed"
		}
	}
}

var observedText = regexp.MustCompile(`\((\S+% observed)\)$`)

// reserves is what words of a limit with a budget have.
const reserves = "reserves what it may cost"

// rulesFrom returns the rules that a running service describes.
func rulesFrom(described []admin.Rule) (all []Rule) {
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
			one.Holds = one.Holds || strings.Contains(terms, "requests in flight")
			one.Limits = one.Limits || terms != "unlimited" && terms != "no limit" && part != "100% observed"
		}
		one.Holds = one.Holds || slices.ContainsFunc(d.Words, func(w string) bool { return strings.Contains(w, reserves) })
		all = append(all, one)
	}
	return all
}
