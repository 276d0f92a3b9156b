package compare

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// logs has a log for each kind of line, so that many lines of one kind do not hide another
// kind.
type logs struct {
	reasons  [len(Reasons)]*zap.Logger
	failures *zap.Logger
}

func newLogs(log *zap.Logger) (l logs) {
	for i := range l.reasons {
		l.reasons[i] = log.WithOptions(zap.WrapCore(rarely))
	}
	l.failures = log.WithOptions(zap.WrapCore(rarely))
	return l
}

func rarely(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Minute, 10, 0)
}

// differed logs a difference. It shows no value that secrets hides.
func (l *logs) differed(q *question, a *answer, domain, rule string, theirs Answer, r Reason, secrets *tier.Secrets) {
	entry := l.reasons[r].Check(zap.InfoLevel, "the other rate-limit service answers differently")
	if entry == nil {
		return
	}
	at := q.subject(a)
	asked, text := show(q.encoded, at, secrets)
	if domain == "" {
		domain = asked
	}
	fields := []zap.Field{
		zap.String("domain", safetext.Text(domain)), zap.String("rule", safetext.Text(rule)), zap.String("descriptor", safetext.Text(text)),
		zap.Stringer("ours", q.ours), zap.Stringer("theirs", theirs), zap.Stringer("reason", r),
	}
	if at >= 0 {
		if l := q.limitOf(at); l != nil {
			fields = append(fields, zap.String("our_limit", l.describe()), zap.Uint64("our_remaining", l.remaining), zap.Duration("retry_after", l.retryAfter))
		}
		if at < len(a.statuses) && a.statuses[at].limited {
			fields = append(fields, zap.String("their_limit", a.statuses[at].describe()))
		}
	}
	entry.Write(fields...)
}

// failed logs that there is no answer to compare. It does not repeat the message of the other
// service, which may hold an API key.
func (l *logs) failed(address string, theirs Answer, code codes.Code) {
	l.failures.Warn("the other rate-limit service does not answer, and only the comparison stops; check that it runs, and compare.address",
		zap.String("address", address), zap.Stringer("theirs", theirs), zap.Stringer("code", code))
}
