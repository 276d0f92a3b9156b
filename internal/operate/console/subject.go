package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/words"
	"github.com/slidegate/slidegate/pkg/window"
)

// A subjectPage is the content of the page of a subject, an address or a key.
type subjectPage struct {
	// Empty is true if the page asks for a subject, and Unrecognized if the typed one is unknown.
	Empty, Unrecognized bool
	Query               insight.Query
	Usage               *insight.Usage
	// Failed is true if the usage could not be read.
	Failed bool
	// Headline says whether requests pass, and Level is ok, near or denied.
	Headline, Level string
	Detail          string
	Limits          []limit
	Denied          denied
	// Next is the address of the next page of limits.
	Next string
	answered
	// Rule is the rule whose limits alone are shown.
	Rule string
}

// denied are the last denials of a subject, in all instances.
type denied struct {
	All    insight.Denials
	Bursts []burst
	// Run are those of the limit in the headline. Nil: there are none.
	Run *run
	// Elsewhere is a denial that still holds, by a limit that is not the subject's own: its address
	// has it, for example. Nil: none.
	Elsewhere *insight.Denial
}

// answered is what the last form led to, and what operators have granted.
type answered struct {
	// Suggestions are ids that an unknown text may mean.
	Suggestions []string
	// Reset is what was just removed.
	Reset *insight.Reset
	// Wrong says what is wrong with a form.
	Wrong string
	// Grants are those that have not ended.
	Grants []*grant.Grant
}

// A limit is one limit of a subject, with what it means for the next request.
type limit struct {
	insight.LimitUsage
	// State is ok, near, denied, observed, unlimited, or sent if what remains is not known.
	State string
	// Passes says what it takes to pass.
	Passes string
}

// Fields returns the fields of an address or a form that name the subject.
func (p subjectPage) Fields() map[string]string {
	return map[string]string{"id": p.Query.Subject, "address": p.Query.Address, "digest": p.Query.Digest}
}

// Address returns the address of the page.
func (p subjectPage) Address() string { return subjectAddress(p.Query) }

// Login returns the address of the login that leads back to the page.
func (p subjectPage) Login() string {
	return address("/login", "id", p.Query.Subject, "address", p.Query.Address, "digest", p.Query.Digest)
}

// Kind says what the subject is.
func (p subjectPage) Kind() string {
	switch {
	case p.Query.Address != "":
		return "Address"
	case p.Query.Digest != "" && (p.Usage == nil || p.Usage.Subject == ""):
		return "API key"
	}
	return "Customer"
}

// Name returns the name of the subject.
func (p subjectPage) Name() string {
	switch {
	case p.Usage != nil && p.Usage.Subject != "":
		return p.Usage.Subject
	case p.Query.Subject != "":
		return p.Query.Subject
	case p.Query.Address != "":
		return p.Query.Address
	}
	return tier.ShortDigest(p.Query.Digest) + "…"
}

// query returns the query in the fields of a request. ok is false if its subject is not recognized.
func (c *Console) query(ctx context.Context, get func(string) string) (q insight.Query, ok bool) {
	id, addr, digest := get("id"), get("address"), get("digest")
	switch {
	case digest != "" && id == "" && addr == "":
		var err error
		q.Digest, err = tier.ReadDigest(digest)
		ok = err == nil && !c.opts.Insight.IsKey(ctx, digest) // an API key may look like a digest
	case addr != "" && id == "":
		q.Address = insight.Address(addr)
		ok = q.Address != ""
	case id != "":
		q, ok = c.opts.Insight.Find(ctx, insight.Query{Subject: id}, id)
	}
	if !ok {
		return insight.Query{}, false
	}
	return q, true
}

func (c *Console) subject(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	get := r.URL.Query().Get
	if get("id")+get("address")+get("digest") == "" {
		c.showSubject(w, r, http.StatusOK, subjectPage{Empty: true})
		return
	}
	q, ok := c.query(ctx, get)
	if !ok {
		c.unrecognized(w, r, get("id"))
		return
	}
	p := c.read(ctx, q, c.ruleName(get("rule")), get("cursor"))
	if n, err := strconv.ParseUint(get("reset"), 10, 64); err == nil {
		for _, a := range c.opts.Insight.Audit() {
			if a.ID == n {
				p.Reset = &a
				break
			}
		}
	}
	c.showSubject(w, r, http.StatusOK, p)
}

// unrecognized answers that a text names nothing, and which ids it may mean.
func (c *Console) unrecognized(w http.ResponseWriter, r *http.Request, text string) {
	c.showSubject(w, r, http.StatusNotFound, subjectPage{Unrecognized: true, answered: answered{Suggestions: c.opts.Insight.Suggest(text)}})
}

// ruleName returns the name of a rule, or an empty text if no rule has that name.
func (c *Console) ruleName(name string) string {
	if slices.ContainsFunc(c.opts.Active().Rules, func(r admin.Rule) bool { return r.Name == name }) {
		return name
	}
	return ""
}

func (c *Console) showSubject(w http.ResponseWriter, r *http.Request, code int, p subjectPage) {
	v := view{Page: "subject", Title: "Find a customer", Instances: p.Denied.All.Instances, Data: p}
	if !p.Empty && !p.Unrecognized {
		v.Title, v.Refresh = safetext.Runes(p.Name(), 60), 2
	}
	if u := p.Usage; u != nil {
		v.Past = c.past(r.Context(), history.Query{Subject: cmp.Or(u.Subject, p.Query.Subject, p.Query.Digest, p.Query.Address)})
	}
	c.show(w, r, code, v)
}

// read reads all about a subject.
func (c *Console) read(ctx context.Context, q insight.Query, rule, cursor string) subjectPage {
	p := subjectPage{Query: q, Rule: rule}
	ask := q
	ask.Rule, ask.Cursor = rule, cursor
	u, err := c.opts.Insight.Usage(ctx, ask)
	if err != nil {
		// The error may repeat the question.
		p.Failed, p.Level, p.Headline = true, "denied", "The usage cannot be read"
		p.Detail = "The store did not answer in time, or the address of this page is outdated. The overview says whether the store works."
		return p
	}
	p.Usage = u
	for _, l := range u.Limits {
		p.Limits = append(p.Limits, newLimit(l))
	}
	// Limits that deny come first, and those that are not used last.
	order := []string{"denied", "near", "ok", "sent", "observed", "unlimited"}
	slices.SortStableFunc(p.Limits, func(a, b limit) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(min(b.Used, 1), min(a.Used, 1)))
	})
	p.headline()
	if u.Next != "" {
		p.Next = subjectAddress(q, "rule", rule, "cursor", u.Next)
	}
	p.Denied.All, p.Grants = c.denialsOf(ctx, p), c.grantsOf(&p)
	p.Denied.Bursts = bursts(p.Denied.All.Denials, subjectBursts)
	p.Denied.Run = p.run(c.opts.Now())
	p.elsewhere(c.opts.Now(), c.opts.Insight.Audit())
	return p
}

// A run is denials by one rule, up to now, without a pause as long as the window of its limit.
type run struct {
	First, Last time.Time
	Count       uint64
	// Cut is true if there may be earlier ones.
	Cut bool
}

// run returns the run of the limit in the headline, or nil.
func (p *subjectPage) run(now time.Time) *run {
	denying := p.Usage.Denying()
	if len(denying) == 0 {
		return nil
	}
	by, r := denying[0], &run{First: now}
	for i, d := range p.Denied.All.Denials {
		if d.Rule != by.Rule || d.Domain != by.Domain || d.Shadow {
			continue
		}
		if r.First.Sub(d.At).Seconds() > by.Window {
			break
		}
		if r.Count == 0 {
			r.Last = d.At
		}
		r.First, r.Count = d.At, r.Count+d.Stands
		r.Cut = i >= askedOfEach-1 && i == len(p.Denied.All.Denials)-1
	}
	if r.Count == 0 {
		return nil
	}
	return r
}

// elsewhere finds a denial that still holds under a rule without a limit on the page. A reset of
// an address by this instance ends the denials before it.
func (p *subjectPage) elsewhere(now time.Time, resets []insight.Reset) {
	if p.Next != "" || p.Rule != "" || p.Usage.Source == "local" {
		return // not all limits of the subject are on the page
	}
	for i, d := range p.Denied.All.Denials {
		listed := slices.ContainsFunc(p.Limits, func(l limit) bool { return l.Rule == d.Rule && l.Domain == d.Domain })
		ended := slices.ContainsFunc(resets, func(r insight.Reset) bool {
			return r.Query.Address != "" && r.At.After(d.At) && (r.Query.Rule == "" || r.Query.Rule == d.Rule)
		})
		if listed || ended || d.Shadow || d.Never || !d.Reset.After(now) {
			continue
		}
		p.Denied.Elsewhere = &p.Denied.All.Denials[i]
		if p.Level != "denied" {
			p.Level, p.Headline = "near", "Limits of the subject have room, but "+safetext.Runes(d.Rule, 60)+" denies it"
			p.Detail = "That limit belongs to something that it shares with others."
		}
		return
	}
}

// subjectBursts is how many groups of denials the page of a subject has.
const subjectBursts = 10

func (c *Console) denialsOf(ctx context.Context, p subjectPage) insight.Denials {
	return c.ofAll(ctx, insight.Filter{
		Limit: maxOffered, Subject: cmp.Or(p.Usage.Subject, p.Query.Subject, p.Query.Digest), Address: p.Query.Address,
	}, "")
}

func newLimit(u insight.LimitUsage) limit {
	l := limit{LimitUsage: u}
	switch {
	case u.Unlimited:
		l.State, l.Passes = "unlimited", "The rule does not limit this customer."
		return l
	case u.Sent:
		l.State, l.Passes = "sent", "Each request brings a limit, so what remains is not known here."
		return l
	case u.Local:
		l.State, l.Passes = "sent", "The store does not answer, so on_store_error decides: "+u.OnStoreError+"."
		return l
	case u.Shadow:
		l.State = "observed"
	case u.Denies():
		l.State = "denied"
	case float64(u.Used) >= 0.8*float64(u.Limit):
		l.State = "near"
	default:
		l.State = "ok"
	}
	l.Passes = u.Passes()
	if u.Shadow && u.Remaining == 0 {
		l.Passes = "Requests pass, because the limit is only observed. Otherwise " + strings.ToLower(l.Passes[:1]) + l.Passes[1:]
	}
	return l
}

// Freed says when what is used comes back.
func (l *limit) Freed() string {
	next, empty := words.Seconds(l.NextFree), words.Seconds(l.Empty)
	if l.Policy == window.InFlight.String() {
		return "If no request reports its end, the next one stops counting in " + next + ", the last one in " + empty + "."
	}
	return "The next hit comes back in " + next + ", the last one in " + empty + "."
}

// headline says whether the subject's next request passes.
func (p *subjectPage) headline() {
	denied := p.Usage.Denying()
	var near []limit
	enforced := 0
	for _, l := range p.Limits {
		if l.State == "near" {
			near = append(near, l)
		}
		if l.State != "observed" && l.State != "sent" && l.State != "unlimited" {
			enforced++
		}
	}
	switch {
	case len(denied) > 0:
		l := denied[0]
		p.Level = "denied"
		p.Headline = "Denied now by " + safetext.Runes(l.Rule, 60)
		p.Detail = l.Use() + ". " + l.Passes()
		if len(denied) > 1 {
			p.Detail += fmt.Sprintf(" %d limits in all have no room.", len(denied))
		}
	case p.Usage.Uncertain():
		p.Level, p.Headline = "near", "Cannot be known while the store is unavailable"
		p.Detail = "Until it answers, on_store_error of each rule decides. The overview says what to do."
	case len(near) > 0:
		p.Level = "near"
		p.Headline = "Passes now, near the limit of " + safetext.Runes(near[0].Rule, 60)
		p.Detail = fmt.Sprintf("%s remain of %s.", near[0].Hits(near[0].Remaining), near[0].Amount())
	case p.Usage.ByAddress:
		p.Level, p.Headline = "near", "The address of the client decides"
		p.Detail = "Unknown API keys share one log for each address. Look for the address."
	case enforced == 0 && len(p.Limits) == 0:
		p.Level, p.Headline = "ok", "No limit applies"
		p.Detail = "No rule limits this customer, or it has sent no request within a window."
	default:
		p.Level, p.Headline = "ok", "Passes now"
		p.Detail = "All limits have room."
		if enforced == 1 {
			p.Detail = "The limit has room."
		}
	}
	if p.Next != "" || p.Usage.Next != "" {
		p.Detail += " This is true for the limits on this page."
	}
}

func (c *Console) reset(w http.ResponseWriter, r *http.Request) {
	q, ok := c.formQuery(w, r)
	if !ok {
		return
	}
	rule, reason := r.PostForm.Get("rule"), strings.TrimSpace(r.PostForm.Get("reason"))
	switch {
	case rule != "" && c.ruleName(rule) == "":
		c.refuse(w, r, q, errNoRule)
		return
	case reason == "":
		c.refuse(w, r, q, &insight.InvalidError{Text: "the audit log needs a reason"})
		return
	}
	request := insight.ResetRequest{Query: q, Reason: reason, By: c.opts.Access.Caller(r).By()}
	request.Rule = rule
	done, err := c.opts.Insight.Reset(r.Context(), request)
	if err != nil {
		c.refuse(w, r, q, err)
		return
	}
	seeOther(w, subjectAddress(q, "reset", strconv.FormatUint(done.ID, 10)))
}

var errNoRule = &insight.InvalidError{Text: "no active rule has that name; the rules may have changed"}

// formQuery returns the query of the subject in a form. It answers if that is not recognized.
func (c *Console) formQuery(w http.ResponseWriter, r *http.Request) (q insight.Query, ok bool) {
	if q, ok = c.query(r.Context(), r.PostForm.Get); !ok {
		c.unrecognized(w, r, r.PostForm.Get("id"))
	}
	return q, ok
}

// refuse shows the page of a subject with the error that a form led to.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, q insight.Query, err error) {
	p, code := c.read(r.Context(), q, "", ""), http.StatusBadGateway
	p.Wrong = "The store does not answer. Nothing is lost: try again when the overview shows no problem."
	if invalid := new(insight.InvalidError); errors.As(err, &invalid) || errors.Is(err, insight.ErrNoGrant) {
		p.Wrong, code = "The service refuses this: "+err.Error()+".", http.StatusUnprocessableEntity
	}
	c.showSubject(w, r, code, p)
}

// A resetChoice is what a reset can remove: the logs of one rule, or of every rule.
type resetChoice struct {
	Rule, Text string
	Chosen     bool
}

// Resets returns the choices of a reset with what each removes: the rules whose limits are on the page,
// and then every rule. The rule that denies is chosen, or else the first that has used something.
func (p subjectPage) Resets() []resetChoice {
	var names []string
	used := make(map[string][]string)
	chosen, logs := p.Rule, 0
	if denied := p.Usage.Denying(); len(denied) > 0 && chosen == "" {
		chosen = denied[0].Rule
	}
	for _, l := range p.Limits {
		if l.Unlimited {
			continue
		}
		if _, listed := used[l.Rule]; !listed {
			names, used[l.Rule] = append(names, l.Rule), nil
		}
		if l.Used > 0 {
			logs++
			text := l.Hits(l.Used) + " used"
			if !l.Sent {
				text += " of " + l.Amount()
			}
			used[l.Rule] = append(used[l.Rule], text)
			chosen = cmp.Or(chosen, l.Rule)
		}
	}
	var all []resetChoice
	for _, name := range names {
		text := "nothing used"
		if n := len(used[name]); n > 3 {
			text = strings.Join(used[name][:3], ", ") + fmt.Sprintf(" and %d more", n-3)
		} else if n > 0 {
			text = strings.Join(used[name], ", ")
		}
		all = append(all, resetChoice{name, text, name == chosen})
	}
	text := "all of these: " + words.Counted(uint64(logs), "counter")
	if p.Usage.Next != "" {
		text += ", and those of further pages"
	}
	return append(all, resetChoice{"", text, chosen == ""})
}
