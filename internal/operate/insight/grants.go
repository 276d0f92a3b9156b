package insight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
)

// MaxGrants is the largest number of grants at a time.
const MaxGrants = 1000

// Grants are those of all instances. List is nil if there can be none.
type Grants struct {
	List   *sharedlist.List[grant.Grant]
	Active *grant.Active // what List changes
}

// NewGrants returns the grants in a document, which is that of all instances.
func NewGrants(in sharedlist.Document, now func() time.Time, log *zap.Logger) Grants {
	g := Grants{Active: new(grant.Active)}
	g.List = sharedlist.New(sharedlist.Options[grant.Grant]{
		Name: "grants", Document: in, Max: MaxGrants, Now: now, Log: log,
		Parse:   func(data []byte) (*grant.Grant, error) { return grant.Parse(data, now()) },
		Until:   func(g *grant.Grant) time.Time { return g.Until },
		Changed: g.Active.Store,
	})
	return g
}

// A GrantRequest asks for more of one rule, for one caller, until a time. Exactly one of Subject, Address
// and Digest is set.
type GrantRequest struct {
	grant.Caller
	Rule string `json:"rule" doc:"the name of the rule"`
	grant.Amount
	// Until is as [Until] reads it.
	Until string `json:"until" doc:"a time such as 18:00 (UTC) or 2026-01-31T18:00:00Z, or a duration such as 2h; at most 31 days"`
	// Reason is required, for the audit log and for who asks later.
	Reason string `json:"reason" doc:"for the audit log; no API key"`
	By     string `json:"-"` // as in ResetRequest

	found *subject // as in Query
}

// Grant returns a request of a grant for the query's subject.
func (q Query) Grant(rule string, amount grant.Amount, until, reason, by string) GrantRequest {
	return GrantRequest{grant.Caller{Subject: q.Subject, Address: q.Address, Digest: q.Digest}, rule, amount, until, reason, by, q.found}
}

// errGranted says that there is such a grant already: another instance that shares the store made it.
var errGranted = errors.New("it is granted already")

var errNoGrants = &InvalidError{"this service has no grants"}

// Grants returns the grants that have not ended, the newest first.
func (i *Insight) Grants() []*grant.Grant {
	if i.opts.Grants.List == nil {
		return nil
	}
	all := i.opts.Grants.List.All()
	slices.SortStableFunc(all, func(a, b *grant.Grant) int { return b.At.Compare(a.At) })
	return all
}

// Grant raises limits for a time, in all instances. It replaces an earlier grant of the same rule and
// caller, and writes a line to the audit log. The error is a [InvalidError], or that of the store.
func (i *Insight) Grant(ctx context.Context, r GrantRequest) (*grant.Grant, error) {
	if i.opts.Grants.List == nil {
		return nil, errNoGrants
	}
	if err := CheckReason(r.Reason); err != nil {
		return nil, err
	}
	if err := r.Valid(); err != nil {
		return nil, badQuery("%v", err)
	}
	now := i.opts.Now()
	until, err := readUntil(r.Until, now)
	if err != nil {
		return nil, err
	}
	caller, rule, err := i.grantee(ctx, &r)
	if err != nil {
		return nil, err
	}
	g := &grant.Grant{ID: grant.NewID(), Rule: rule, Caller: caller, Amount: r.Amount, Until: until, Reason: r.Reason, By: shownUpTo(r.By, maxBy), At: now.UTC().Truncate(time.Second)}
	if err := g.Valid(now); err != nil {
		return nil, badQuery("%v", err)
	}
	err = i.opts.Grants.List.Change(ctx, func(all []*grant.Grant) ([]*grant.Grant, error) {
		for _, o := range all {
			if o.Rule == g.Rule && o.Caller == g.Caller && o.Amount == g.Amount && o.Until.Equal(g.Until) && o.Reason == g.Reason {
				g = o
				return nil, errGranted
			}
		}
		all = slices.DeleteFunc(all, func(o *grant.Grant) bool { return o.Rule == g.Rule && o.Caller == g.Caller })
		if len(all) >= MaxGrants {
			return nil, badQuery("there are %d grants, which is the most: revoke some first", MaxGrants)
		}
		return append(all, g), nil
	})
	if errors.Is(err, errGranted) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	i.auditGrant("an operator has granted more of a limit", g, g.By)
	return g, nil
}

// ErrNoGrant is the error of [Insight.Revoke] for an id that no grant has.
var ErrNoGrant = errors.New("no grant has this id: it may have ended, or was revoked")

// Revoke ends a grant in all instances, and writes a line to the audit log. by is who asks.
func (i *Insight) Revoke(ctx context.Context, id, by string) (*grant.Grant, error) {
	if i.opts.Grants.List == nil {
		return nil, ErrNoGrant
	}
	var revoked *grant.Grant
	err := i.opts.Grants.List.Change(ctx, func(all []*grant.Grant) ([]*grant.Grant, error) {
		at := slices.IndexFunc(all, func(g *grant.Grant) bool { return g.ID == id })
		if at < 0 {
			return nil, ErrNoGrant
		}
		revoked = all[at]
		return slices.Delete(all, at, at+1), nil
	})
	if err != nil {
		return nil, err
	}
	i.auditGrant("an operator has revoked a grant", revoked, shownUpTo(by, maxBy))
	return revoked, nil
}

func (i *Insight) auditGrant(message string, g *grant.Grant, by string) {
	if i.opts.Audit == nil {
		return
	}
	i.opts.Audit.Info(message, Texts("id", g.ID, "by", by, "rule", g.Rule, "amount", g.Amount.String(), "until", g.Until.UTC().Format(time.RFC3339), "reason", g.Reason,
		"subject", g.Subject, "address", g.Address, "digest", g.Digest)...)
}

// Until reads when something ends: the next time of day in UTC, an instant, or a duration from now.
func Until(text string, now time.Time) (until time.Time, err error) {
	if clock, err := time.Parse("15:04", text); err == nil {
		until = now.UTC().Truncate(24 * time.Hour).Add(time.Duration(clock.Hour())*time.Hour + time.Duration(clock.Minute())*time.Minute)
		if !until.After(now) {
			until = until.AddDate(0, 0, 1)
		}
		return until, nil
	}
	if d, err := strict.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	if until, err = time.Parse(time.RFC3339, text); err != nil {
		return until, errors.New("write a time in UTC such as 18:00 or 2026-01-31T18:00:00Z, or a duration such as 2h")
	}
	return until, nil
}

// readUntil reads when a grant ends.
func readUntil(text string, now time.Time) (time.Time, error) {
	until, err := Until(text, now)
	if err != nil {
		return until, badQuery("until: %v", err)
	}
	if left := until.Sub(now); left <= 0 || left > grant.MaxTime {
		return until, badQuery("until: it must be in the next %d days", grant.MaxTime/(24*time.Hour))
	}
	return until.UTC().Add(time.Second - 1).Truncate(time.Second), nil
}

// grantee returns whom a grant is for and the name of the rule, if the grant raises a limit.
func (i *Insight) grantee(ctx context.Context, r *GrantRequest) (who grant.Caller, rule string, err error) {
	s, err := i.subject(ctx, Query{Subject: r.Subject, Address: r.Address, Digest: r.Digest, found: r.found})
	if err != nil {
		return who, "", err
	}
	var all []*rules.Rule
	var names []string
	for _, one := range s.rules.All() {
		if names = append(names, one.Name); r.Rule != "" && named(one, r.Rule) {
			all = append(all, one)
		}
	}
	if len(all) == 0 {
		return who, "", noRule(r.Rule, names)
	}
	switch known := s.Subject; {
	case s.query.Address != "":
		who.Address = s.query.Address
	case s.ByAddress:
		return who, "", badQuery("%s", countsByAddress)
	case known != nil && known.Disabled:
		return who, "", badQuery("the customer is disabled, so its API keys count as unknown ones: no grant helps")
	case known != nil:
		who.Subject = known.ID
	case s.Unavailable:
		return who, "", errors.New("the customer source does not answer, so it is not known whose limits these are: try again")
	default:
		who.Subject, who.Digest = s.query.Subject, s.query.Digest
		u, err := i.Usage(ctx, Query{Subject: who.Subject, Digest: who.Digest, found: s})
		if err != nil {
			return who, "", err
		}
		if !u.Recognized {
			return who, "", badQuery("%s", i.unrecognized(s))
		}
	}
	return who, all[0].Name, i.raises(ctx, s, who, all, r.Amount)
}

// noRule says that there is no rule with a name. It repeats no text that may be an API key.
func noRule(name string, names []string) error {
	if name == "" {
		return badQuery("rule: name the rule whose limits are raised")
	}
	if suggestion := strict.DidYouMean(name, names); suggestion != "" {
		return badQuery("no rule %q%s", name, suggestion)
	}
	return badQuery("no rule has this name; GET /v1/rules lists the names")
}

// raises returns why an amount raises none of the limits that rules have for a subject, or nil.
func (i *Insight) raises(ctx context.Context, s *subject, who grant.Caller, all []*rules.Rule, a grant.Amount) error {
	q := s.query
	pq, err := parse(s.rules, &q)
	if err != nil {
		return err
	}
	pq.Subjects, pq.Wait, pq.Now = i.opts.Subjects, subjectWait, i.opts.Now // without the grants of now
	account := explain.AccountOf(ctx, s.rules, pq)
	var limits []explain.AccountLimit
	for _, r := range all {
		one, open := account.Rule(r.Number())
		if open {
			one = account.NoLog(r.Number())
		}
		limits = append(limits, one...)
	}
	has := "the rule does not apply to it"
	for n := range limits {
		switch l := &limits[n]; {
		case l.Unlimited:
			has = "the rule does not limit it"
		case l.Observed:
			has = "the limit is only observed, and denies nothing"
		case who.Address != "" && !counts(l.Rule, who.Address):
			has = "the rule counts networks: name the network as requests have it, such as 192.0.2.0/24"
		default:
			raised := l.Limit
			if a.Raise(&raised) {
				return nil
			}
			has = fmt.Sprintf("it does not raise the limit, which is %s: give a factor, or a larger number for the same window", l.Limit.Text())
		}
	}
	return badQuery("nothing to grant under the rule %s: %s", all[0].Name, has)
}

// counts reports whether requests can have an address in the logs of a rule.
func counts(r *rules.Rule, address string) bool {
	network := strings.Contains(address, "/")
	for _, n := range r.Path {
		if rules.IsAddressKey(n.Key) && (n.Key == rules.KeyMaskedAddress) == network {
			return true
		}
	}
	return r.HasSubject() && !network
}
