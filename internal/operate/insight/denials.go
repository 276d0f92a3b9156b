package insight

import (
	"cmp"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/text/clientaddr"
)

// A Denial is a request that a limit denied, or would have denied if it were enforced.
type Denial struct {
	// ID increases with each recorded denial of the process.
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"`
	Domain string    `json:"domain"`
	Rule   string    `json:"rule" doc:"the rule that denied; of several, the one with the longest wait"`
	Caller
	Terms        // Policy is empty for sliding
	Used  uint64 `json:"used" doc:"the value of the counter; with degraded, the limit"`
	Cost  uint64 `json:"cost"`
	// Reserved is what streams had reserved of a budget. Used does not count it.
	Reserved uint64 `json:"reserved,omitempty" doc:"reserved of a budget, besides used"`
	Retry
	Position
	// Shadow is true if the limit is only observed, so the request passed.
	Shadow bool `json:"shadow,omitempty" doc:"the limit is in shadow mode, and the request passed"`
	// Degraded is true if the store did not decide.
	Degraded bool `json:"degraded,omitempty" doc:"the store did not decide"`
	// Stands is how many denials this one stands for: 1, or more while the rate is above
	// what is recorded.
	Stands uint64 `json:"stands" doc:"how many denials this one stands for, if they are sampled"`
	// Instance is the name of the instance, if several have answered.
	Instance string `json:"instance,omitempty" doc:"the instance that denied it, if several were asked"`
}

// Use says how much of the limit was used: 5 used of 5 per 1m. Of a budget it says what was reserved, too.
func (d *Denial) Use() string {
	if d.Reserved > 0 {
		return d.UseOf(d.Used, d.Reserved)
	}
	return d.Units(d.Used) + " used of " + d.Amount()
}

// A Caller is whose request was denied.
type Caller struct {
	// Subject is the id of the subject: of a known one, or as an entry that is no API key names
	// it. Empty: there is none. Digest is the digest of an unknown API key that has its own log.
	Subject string `json:"subject,omitempty"`
	Digest  string `json:"digest,omitempty" doc:"the digest of an unknown API key with its own counter"`
	// Address is the client's address, masked to /24 or /48.
	Address string `json:"address,omitempty" doc:"the client's address, masked to /24 or /48"`
	Tier    string `json:"tier,omitempty"`
	// Route is the route of the request; see [identity.CallerInfo].
	Route string `json:"route,omitempty" doc:"the entry that names the route, such as path"`
	// RequestID is the id of the request, if Envoy sends it.
	RequestID string `json:"request_id,omitempty" doc:"x-request-id, if Envoy sends it and it is a UUID"`
}

// Retry says when a denied request passes. Wait, in seconds, and Reset, when it is over, are zero if
// Never is true.
type Retry struct {
	Wait  float64   `json:"wait_seconds" doc:"when this cost passes"`
	Never bool      `json:"never,omitempty" doc:"the cost is above the limit, so no wait helps"`
	Reset time.Time `json:"reset,omitzero"`
}

// A Position is the number of a limit among those of its request: Which, from 1, Of how many.
type Position struct {
	Which int `json:"which" doc:"the number of this limit, from 1"`
	Of    int `json:"of" doc:"how many limits the request has"`
}

// A Filter chooses denials. Empty fields choose all.
type Filter struct {
	Rule string
	// Subject is the id of a subject, or the digest of an API key.
	Subject string
	Route   string
	// Address is an address, or a masked one as in [Denial.Address].
	Address string
	// Request is the id of a request, in capitals or not.
	Request string
	Since   time.Time
	// Limit is the largest number of denials. Zero: 100.
	Limit int
	// Shadow chooses only observed limits if it is "only", and leaves them out if it is "no".
	Shadow string
}

// Denials are the last denials of one process, or of several.
type Denials struct {
	Denials []Denial `json:"denials"`
	// Seen is the number of denials since the start, and Recorded how many of them were
	// recorded. Sampled is n if one of n denials is recorded now.
	Seen     uint64 `json:"seen"`
	Recorded uint64 `json:"recorded"`
	Sampled  uint64 `json:"sampled"`
	// Kept is the largest number of denials that the process keeps.
	Kept      int       `json:"kept"`
	Instance  string    `json:"instance"`
	Instances Instances `json:"instances,omitempty"`
}

// UsualDenials is the length of a list of denials whose Filter has no Limit.
const UsualDenials = 100

// Denials returns the last denials that a filter chooses, the newest first.
func (i *Insight) Denials(f Filter) Denials {
	r := &i.recorder.ring
	i.recorder.drain()
	seen := i.recorder.seen.denials()
	d := Denials{
		Denials: []Denial{}, Seen: seen, Recorded: r.recorded.Load(), Sampled: i.recorder.denials.part(seen), Kept: len(r.denials), Instance: i.opts.Instance,
	}
	limit := cmp.Or(max(f.Limit, 0), UsualDenials)
	f = f.compile()
	newest := r.newest.Load()
	for n := range min(uint64(len(r.denials)), newest) {
		one := r.denials[(newest-n)%uint64(len(r.denials))].Load()
		// A denial that came meanwhile may have replaced it.
		if one != nil && one.ID <= newest && f.has(one) {
			if d.Denials = append(d.Denials, *one); len(d.Denials) == limit {
				break
			}
		}
	}
	return d
}

// has reports whether a compiled filter chooses a denial.
func (f *Filter) has(d *Denial) bool {
	return (f.Rule == "" || f.Rule == d.Rule) &&
		(f.Subject == "" || f.Subject == d.Subject || f.Subject == d.Digest || d.Digest != "" && f.Subject == shortKey(d.Digest)) &&
		(f.Route == "" || f.Route == d.Route) &&
		(f.Address == "" || f.Address == d.Address) &&
		(f.Request == "" || strings.EqualFold(f.Request, d.RequestID)) &&
		(f.Since.IsZero() || !d.At.Before(f.Since)) &&
		(f.Shadow != "only" || d.Shadow) && (f.Shadow != "no" || !d.Shadow)
}

// compile returns the filter with its texts in the form that denials have.
func (f Filter) compile() Filter {
	f.Rule, f.Subject, f.Route, f.Address = shown(f.Rule), shown(f.Subject), shown(f.Route), identity.MaskAddress(clientaddr.Host(f.Address))
	return f
}

var _ decide.Recorder = (*Insight)(nil)

// Denied implements decide.Recorder. While denials are sampled, it allocates nothing for those
// that it leaves out.
func (i *Insight) Denied(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus) {
	i.recorder.record(false, req, v, s)
}

// Near implements decide.Recorder, like Denied.
func (i *Insight) Near(req *decide.Request, v *decide.Verdict, s *decide.LimitStatus) {
	i.recorder.record(true, req, v, s)
}

// Budget implements decide.Recorder. It keeps nothing: pages read budgets from the store, and package
// events announces them.
func (i *Insight) Budget(*decide.Request, *decide.LimitStatus, string) {}
