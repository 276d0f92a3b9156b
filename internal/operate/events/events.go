package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/window"
)

// Thresholds are the percentages of a budget that are announced. The last one is also reached if a
// request is denied while nothing is reserved: what is left is too little for it.
var Thresholds = [...]int{80, 100}

// types are the types of events by their threshold.
var types = [len(Thresholds)]string{"budget.nearly_spent", "budget.spent"}

// MaxLogs is how many logs an [Events] remembers.
const MaxLogs = 10_000

// Options of an [Events]. Log is required.
type Options struct {
	// Instance names this process in events.
	Instance string
	// Log gets a line for each event. Wrap it to sample them.
	Log *zap.Logger
	// Count counts events by the domain and the rule of the budget. Nil disables it.
	Count func(domain, rule string, threshold int)
	// Webhook delivers events. Nil: they are not sent.
	Webhook *Webhook
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// An Events announces when budgets are nearly spent. It is safe for concurrent use.
type Events struct {
	o Options

	mu   sync.Mutex
	logs map[uint64]*state // by the hash of the name of the log
}

// A state says what is announced of one log.
type state struct {
	period period
	level  int                      // how many thresholds usage has reached
	ids    [len(Thresholds)]eventID // of the last event of each threshold
}

type eventID [16]byte

// A period is a time in which a threshold of a log is one event. Its number is unique for its length.
type period struct {
	number int64
	end    time.Time
	renews bool // usage is zero at its begin
}

// New returns an Events that remembers nothing.
func New(o Options) *Events {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Count == nil {
		o.Count = func(string, string, int) {}
	}
	return &Events{o: o, logs: make(map[uint64]*state)}
}

// An Event is the body of a call of the webhook.
type Event struct {
	Type string    `json:"type"` // budget.nearly_spent or budget.spent
	At   time.Time `json:"timestamp"`
	Data Budget    `json:"data"`
}

// A Budget says how much of a budget is used. Its texts have a bound.
type Budget struct {
	Threshold int    `json:"threshold"` // in percent
	Domain    string `json:"domain"`
	Rule      string `json:"rule"`
	insight.Caller
	insight.Terms
	Spent    uint64 `json:"spent"`
	Reserved uint64 `json:"reserved"`
	// Shadow is true if the budget is only observed.
	Shadow   bool   `json:"shadow,omitempty"`
	Instance string `json:"instance"`
}

// Budget announces the thresholds that a log has reached by a decision on its budget. log is its name.
func (e *Events) Budget(req *decide.Request, s *decide.LimitStatus, log string) {
	if s.DecidedBy != verdict.ByStore || s.Limit.Hits == 0 || s.Limit.Hits == window.Unlimited {
		return
	}
	now := e.o.Now()
	for i, id := range e.reach(s, log, periodOf(s, now)) {
		if id != (eventID{}) {
			e.announce(req, s, i, id, now)
		}
	}
}

// reach notes how much of a log is spent. It returns the ids of the thresholds to announce.
func (e *Events) reach(s *decide.LimitStatus, log string, p period) (ids [len(Thresholds)]eventID) {
	level, hash := levelOf(s), xxhash.Sum64String(log)
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.logs[hash]
	switch {
	case known == nil && level == 0:
		return ids
	case known == nil:
		if len(e.logs) >= MaxLogs {
			e.forget()
		}
		known = new(state)
		e.logs[hash] = known
	case p.number != known.period.number && level == 0:
		delete(e.logs, hash)
		return ids
	case p.number != known.period.number && p.renews:
		known.level = 0
	}
	for i := known.level; i < level; i++ {
		id := identify(s, log, i, p)
		if id != known.ids[i] {
			ids[i], known.ids[i] = id, id
		}
	}
	known.level, known.period = level, p
	return ids
}

// forget makes room: it forgets the logs whose periods are over, or else any. The caller has locked mu.
func (e *Events) forget() {
	now := e.o.Now()
	for hash, s := range e.logs {
		if s.period.end.Before(now) {
			delete(e.logs, hash)
		}
	}
	for hash := range e.logs {
		if len(e.logs) < MaxLogs {
			break
		}
		delete(e.logs, hash)
	}
}

// levelOf returns how many thresholds usage has reached.
func levelOf(s *decide.LimitStatus) (level int) {
	spent := s.Spent()
	for level < len(Thresholds) && spent*100 >= s.Limit.Hits*uint64(Thresholds[level]) { // both below 2^63
		level++
	}
	if d := &s.Decision; level == len(Thresholds)-1 && !d.Allowed && !d.Never && d.Reserved == 0 {
		level++
	}
	return level
}

// periodOf returns the period of a log in which a decision was made. At the border of two periods it
// believes the wait until the end that the store has computed, and not this process's clock.
func periodOf(s *decide.LimitStatus, now time.Time) period {
	length, _ := s.Span()
	rest := s.Decision.ResetAfter
	p := period{renews: s.Limit.Policy == window.Fixed || s.Limit.Policy == window.Calendar}
	if s.Limit.Policy == window.Calendar && s.Period.End > 0 {
		begin, end := time.Unix(s.Period.Start, 0), time.Unix(s.Period.End, 0)
		if p.end = end; rest > 0 && now.Add(rest).Sub(begin) < end.Sub(begin)/2 {
			p.end = begin // the store is still in the period before
		}
		p.number = p.end.Unix()
		return p
	}
	// Since 1970, as the stores count.
	micros, size := now.UnixMicro(), max(length.Microseconds(), 1)
	if p.renews && rest > 0 {
		micros += rest.Microseconds() - size/2 // the middle of the period
	}
	p.number = micros / size
	p.end = time.UnixMicro((p.number + 1) * size)
	return p
}

// identify returns the id of an event.
func identify(s *decide.LimitStatus, log string, threshold int, p period) eventID {
	l := &s.Limit
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %d %d %d", log, l.Policy, l.Window, l.Hits, l.Rate, Thresholds[threshold], p.number))
	return eventID(sum[:])
}

// announce counts an event, and gives it to the log and the webhook.
func (e *Events) announce(req *decide.Request, s *decide.LimitStatus, threshold int, id eventID, now time.Time) {
	b := Budget{
		Threshold: Thresholds[threshold], Domain: s.Rule.Domain, Rule: s.Rule.Name, Caller: insight.CallerOf(req, s), Terms: insight.TermsOf(&s.Limit),
		Spent: s.Spent(), Reserved: s.Decision.Reserved, Shadow: s.Observed(), Instance: e.o.Instance,
	}
	b.Route, b.RequestID = "", "" // of one request among many
	name := "evt_" + hex.EncodeToString(id[:])
	e.o.Count(b.Domain, b.Rule, b.Threshold)
	e.o.Log.Info("a budget has reached a threshold", append(insight.Texts("domain", b.Domain, "rule", b.Rule, "subject", b.Subject, "digest", tier.ShortDigest(b.Digest),
		"address", b.Address, "tier", b.Tier, "event", name), zap.Int("threshold", b.Threshold), zap.String("use", b.UseOf(b.Spent, b.Reserved)),
		zap.String("amount", b.Amount()), zap.Bool("shadow", b.Shadow))...)
	if e.o.Webhook != nil {
		body, _ := json.Marshal(Event{Type: types[threshold], At: now.UTC(), Data: b}) // it has nothing that JSON cannot hold
		e.o.Webhook.add(message{name, body})
	}
}
