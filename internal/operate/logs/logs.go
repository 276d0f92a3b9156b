// Package logs makes the logger of a process.
package logs

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// The values of log.format.
const (
	asJSON    = "json"
	Console   = "console"   // for a terminal
	Reference = "reference" // JSON with the keys of envoyproxy/ratelimit
)

// AtInfo returns the settings of a log whose lines count at any log.level: if that has fewer lines,
// those at info are there too.
func AtInfo(s settings.Log) settings.Log {
	s.Level = zap.InfoLevel.String()
	return s
}

// New returns a logger that writes to standard error, in colours or not.
func New(s settings.Log, colours terminal.Colours) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(s.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(level)
	c.Encoding = s.Format
	c.DisableStacktrace = true
	c.DisableCaller = true
	c.Sampling = nil // package daemon samples frequent messages, such as denials
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if s.Format == Reference {
		c.Encoding = asJSON
		c.EncoderConfig.TimeKey, c.EncoderConfig.MessageKey = "@timestamp", "@message"
		c.EncoderConfig.EncodeLevel = referenceLevel
	}
	if s.Format == Console {
		if colours {
			c.EncoderConfig.EncodeLevel = zapcore.LowercaseColorLevelEncoder
		}
		c.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		c.EncoderConfig.ConsoleSeparator = "  "
	}
	return c.Build()
}

// referenceLevel writes a level as envoyproxy/ratelimit does.
func referenceLevel(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) {
	if l == zapcore.WarnLevel {
		e.AppendString("warning")
		return
	}
	zapcore.LowercaseLevelEncoder(l, e)
}
