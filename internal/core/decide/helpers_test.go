package decide

import (
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/core/coretest"
)

var secrets, anyOf, one, per, fits, rule, with, directory, testRules, request, d, slidingLimit, bucketLimit, fixedLimit, counterLimit, inFlightLimit = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Fits, coretest.Rule, coretest.With, coretest.Directory, coretest.Rules, coretest.Request, coretest.Descriptor, coretest.SlidingLimit, coretest.BucketLimit, coretest.FixedLimit, coretest.CounterLimit, coretest.InFlightLimit

type tester = coretest.T

// logTo returns a log whose lines reach core.
func logTo(core zapcore.Core) Log {
	return func(message string) func(...slog.Attr) {
		return func(attrs ...slog.Attr) {
			var fields []zap.Field
			for _, a := range attrs {
				fields = append(fields, zap.Any(a.Key, a.Value.Any()))
			}
			zap.New(core).Warn(message, fields...)
		}
	}
}

// dropAll is a log that drops every line.
func dropAll(string) func(...slog.Attr) { return nil }
