package insight

import (
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// Texts returns the fields of pairs of a name and a text, without empty texts.
func Texts(pairs ...string) []zap.Field {
	fields := make([]zap.Field, 0, 20)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fields = append(fields, zap.String(pairs[i], pairs[i+1]))
		}
	}
	return fields
}

// lines writes denials to the log, up to a number a second.
type lines struct {
	log       *zap.Logger // nil: no lines
	perSecond int
	denied    allowance
	shadow    allowance
}

// An allowance is what one kind of line may still write in this second.
type allowance struct {
	second  int64
	written int
	last    uint64 // the number of the denial with the last line
}

func newLines(o Record) lines {
	l := lines{log: o.Log, perSecond: o.LogPerSecond}
	if o.LogPerSecond <= 0 {
		l.log = nil
	}
	return l
}

// take reports whether the denial with a number may have a line. If so, it returns how many were
// left out since the last line.
func (a *allowance) take(at time.Time, perSecond int, number uint64) (leftOut uint64, ok bool) {
	if second := at.Unix(); second != a.second {
		a.second, a.written = second, 0
	}
	if a.written >= perSecond {
		return 0, false
	}
	a.written++
	if number > a.last {
		leftOut = number - a.last - 1
		a.last = number
	}
	return leftOut, true
}

// write writes the line of a denial, unless too many were written in this second.
func (l *lines) write(d event) {
	if l.log == nil {
		return
	}
	// A request that a rule in shadow mode lets pass was not denied: it is for debugging.
	message, a, level := "denied", &l.denied, zap.InfoLevel
	if d.Shadow {
		message, a, level = "a rule in shadow mode would have denied a request", &l.shadow, zap.DebugLevel
	}
	entry := l.log.Check(level, message)
	if entry == nil {
		return
	}
	leftOut, ok := a.take(d.At, l.perSecond, d.number)
	if !ok {
		return
	}
	fields := append(Texts("domain", d.Domain, "rule", d.Rule, "subject", d.Subject, "digest", tier.ShortDigest(d.Digest), "address", d.Address,
		"tier", d.Tier, "route", d.Route, "request_id", d.RequestID), zap.Uint64("limit", d.Limit), zap.Float64("window_seconds", d.Window),
		zap.Uint64("used", d.Used), zap.Uint64("cost", d.Cost))
	if d.Policy != "" {
		fields = append(fields, zap.String("policy", d.Policy), zap.String("amount", d.Amount()))
	}
	if d.Reserved > 0 {
		fields = append(fields, zap.Uint64("reserved", d.Reserved))
	}
	if d.Never {
		fields = append(fields, zap.Bool("never", true))
	} else {
		fields = append(fields, zap.Float64("wait_seconds", d.Wait), zap.String("reset", d.Reset.UTC().Format(time.RFC3339Nano)))
	}
	fields = append(fields, zap.Bool("shadow", d.Shadow), zap.Bool("degraded", d.Degraded), zap.Uint64("left_out", leftOut))
	entry.Write(fields...)
}
