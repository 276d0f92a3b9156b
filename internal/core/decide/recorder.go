package decide

import "github.com/slidegate/slidegate/pkg/window"

// A Recorder keeps decisions for operators. The Decider calls it at most once for each request and
// for each budget that it meets, so it must be quick. It keeps no argument, and no text of the request without a copy. It is safe for
// concurrent use.
type Recorder interface {
	// Denied records that a limit had no room: the decisive one of a denied request, or one
	// that is only observed.
	Denied(req *Request, v *Verdict, s *LimitStatus)
	// Near records an allowed request that used a limit above Options.NearLimit.
	Near(req *Request, v *Verdict, s *LimitStatus)
	// Budget records how much of a budget is used (s.Spent, s.Decision.Reserved), after a request has
	// asked for it, and after the end of a stream has said what it has cost. log names its log.
	Budget(req *Request, s *LimitStatus, log string)
}

// record gives the Recorder a request that is decided.
func (c *Call) record() {
	r, v := c.decider.opts.Recorder, &c.verdict
	switch {
	case !v.Allowed && v.Decisive >= 0:
		r.Denied(&c.req, v, &v.Limits[v.Decisive])
	case v.Shadowed >= 0:
		r.Denied(&c.req, v, &v.Limits[v.Shadowed])
	case v.Decisive >= 0 && near(&v.Limits[v.Decisive], c.decider.opts.NearLimit):
		r.Near(&c.req, v, &v.Limits[v.Decisive])
	}
}

// near reports whether an allowed request used the limit above a fraction of it.
func near(s *LimitStatus, fraction float32) bool {
	used := s.Limit.Hits - min(s.Decision.Remaining, s.Limit.Hits)
	return s.Limit.Hits != window.MaxHits && s.Cost > 0 && used > uint64(float32(s.Limit.Hits)*fraction)
}
