package insight

import (
	"context"
	"iter"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// Options of an [Insight]. Rules and Inspector are required.
type Options struct {
	// Instance names this process in answers: the name of its host.
	Instance string
	// Rules returns the active generation.
	Rules func() *rules.Rules
	// Subjects finds the subject of a key or an id. Nil: the directory of the rules does.
	Subjects tier.Resolver
	// Overridden reports whether limits came with requests for a domain. Nil: none did.
	Overridden func(domain string) bool
	// Tiers and Secrets find out whether a typed text is an API key. Nil Tiers: no text is.
	Tiers   Tiers
	Secrets *tier.Secrets
	// Inspector reads and removes logs of the store. Store is the store's name in answers:
	// memory or redis.
	Inspector inspect.Inspector
	Store     string
	// Local reads and removes what this process counts while the store is unavailable. Nil:
	// nothing.
	Local inspect.Inspector
	Asked
	// Record says which denials are recorded.
	Record Record
	// Audit gets a line for each reset and each change of grants.
	Audit *zap.Logger
	// Grants are those of all instances. The zero value has none.
	Grants Grants
	// Removed is called once a reset. Nil disables it.
	Removed func()
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Asked are stores that are asked with a cost of 0. Each may be nil.
type Asked struct {
	// FallbackQuotas says what the fallback quota of this process has left while the store is unavailable. Nil:
	// answers have what the whole limit has left.
	FallbackQuotas window.Store
	// Budgets is the store of Inspector, and says what is reserved of budgets. Nil: answers do not say it.
	Budgets window.Store
}

// Record bounds what an [Insight] records.
type Record struct {
	// Denials is the number of denials that are kept, at least 1, and PerSecond how many a second are
	// recorded; above that a part is.
	Denials, PerSecond int
	// Log gets the denials that are recorded, LogPerSecond of them a second at most. Zero
	// logs none.
	Log          *zap.Logger
	LogPerSecond int
}

// Tiers looks up the record of a key: in the cache of this process, and in the source. Known iterates
// over the subjects that this process has at hand.
type Tiers interface {
	Known() iter.Seq[*tier.Subject]
	Look(tier.Key) tier.Inspection
	Lookup(context.Context, tier.Key) (tier.Inspection, error)
}

// An Insight answers questions about usage and denials, resets limits, and grants more. It is safe for concurrent use.
type Insight struct {
	opts     Options
	recorder *recorder
	resets   resets
}

// New returns an Insight. Close ends it. It runs one goroutine until then.
func New(o Options) *Insight {
	if o.Now == nil {
		o.Now = time.Now
	}
	i := &Insight{opts: o, recorder: newRecorder(o.Record, o.Now)}
	go i.recorder.run()
	return i
}

// Close ends the goroutine. It may be called again.
func (i *Insight) Close() error {
	i.recorder.close()
	return nil
}
