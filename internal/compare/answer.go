package compare

import (
	"time"

	"github.com/slidegate/slidegate/internal/wire"
	"github.com/slidegate/slidegate/pkg/window"
)

// Answer is the result of one service for a call.
type Answer int

// The answers. Only the other service has TimedOut and Skipped.
const (
	OK Answer = iota
	OverLimit
	// Failed: the service has not decided.
	Failed
	// TimedOut: no answer came in time.
	TimedOut
	// Skipped: the other service was not asked, because too many calls wait for it.
	Skipped
)

// Answers lists all answers by number with their metric label.
var Answers = [...]string{OK: "ok", OverLimit: "over_limit", Failed: "error", TimedOut: "timeout", Skipped: "skipped"}

// String returns the metric label.
func (a Answer) String() string { return Answers[a] }

// The codes of an answer, and the tags of its fields: number<<3 | wire type.
const (
	codeOK        = 1
	codeOverLimit = 2

	answerCode     = 1<<3 | wire.AsVarint
	answerStatuses = 2<<3 | wire.AsBytes

	statusCode  = 1<<3 | wire.AsVarint
	statusLimit = 2<<3 | wire.AsBytes

	limitHits       = 1<<3 | wire.AsVarint
	limitUnit       = 2<<3 | wire.AsVarint
	limitMultiplier = 4<<3 | wire.AsBytes

	wrapperNumber = 1<<3 | wire.AsVarint
)

// maxStatuses bounds the statuses that are read. A request has at most as many descriptors.
const maxStatuses = 256

// answer is the part of a RateLimitResponse that is compared. It implements wire.Decoder.
type answer struct {
	code     uint64
	statuses []descriptorStatus
}

// descriptorStatus is the status of one descriptor.
type descriptorStatus struct {
	code    uint64
	limited bool // the service names its limit
	hits    uint64
	window  time.Duration // 0: unknown
}

// Decode implements wire.Decoder. It keeps no part of encoded.
func (a *answer) Decode(encoded string) error {
	var fields int
	*a = answer{}
	return each(wire.NewMessage(encoded, &fields), func(f wire.Field) error {
		switch f.Tag {
		case answerCode:
			a.code = f.Number
		case answerStatuses:
			var s descriptorStatus
			if err := s.decode(f.Message); err != nil {
				return err
			}
			if len(a.statuses) < maxStatuses {
				a.statuses = append(a.statuses, s)
			}
		}
		return nil
	})
}

func (s *descriptorStatus) decode(in wire.Message) error {
	return each(in, func(f wire.Field) error {
		switch f.Tag {
		case statusCode:
			s.code = f.Number
		case statusLimit:
			s.limited = true
			return s.decodeLimit(f.Message)
		}
		return nil
	})
}

// decodeLimit reads the limit of a status.
func (s *descriptorStatus) decodeLimit(in wire.Message) error {
	unit, multiplier := uint64(0), uint64(1)
	err := each(in, func(f wire.Field) error {
		switch f.Tag {
		case limitHits:
			s.hits = f.Number
		case limitUnit:
			unit = f.Number
		case limitMultiplier:
			return each(f.Message, func(f wire.Field) error {
				if f.Tag == wrapperNumber {
					multiplier = f.Number
				}
				return nil
			})
		}
		return nil
	})
	if unit < uint64(len(units)) && multiplier <= maxMultiplier {
		s.window = min(units[unit], window.MaxWindow/time.Duration(max(1, multiplier))) * time.Duration(multiplier)
	}
	return err
}

// each calls read with every field of a message.
func each(in wire.Message, read func(wire.Field) error) error {
	for in.More() {
		f, err := in.Next()
		if err == nil {
			err = read(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxMultiplier keeps a window from overflowing.
const maxMultiplier = uint64(window.MaxWindow / time.Second)

// units are the windows of the units of an answer by number. envoyproxy/ratelimit counts 30
// days as a month.
var units = [...]time.Duration{
	0, time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour, 7 * 24 * time.Hour,
}
