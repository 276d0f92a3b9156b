package window

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of what [Check.Once] may say.
const (
	MinOnce    = time.Second
	MaxOnce    = 24 * time.Hour
	MaxRepeats = 100
)

// Once makes requests with one ID charge one log once. A store keeps an idempotency record of a charge with
// an ID, for a time. A later check of the same log with the same ID is a repeat of it: it has
// room, and charges nothing. The zero value charges every request.
type Once struct {
	// ID is the digest of what names the attempt. Zero names none.
	ID uint64
	// For is how long the idempotency record lives from the charge on: [MinOnce] to [MaxOnce], in whole
	// microseconds. A repeat does not make it longer.
	For time.Duration
	// Repeats is how many repeats one charge covers: 1 to [MaxRepeats]. Later ones are charged,
	// and make no other record.
	Repeats uint8
}

// RecordsOnce reports whether a charge of c leaves an idempotency record, or may be a repeat. Cost 0 charges
// nothing, and leaves none.
func (c *Check) RecordsOnce() bool { return c.Once.ID != 0 && c.Cost > 0 }

// validOnce reports what is wrong with c.Once, or nil.
func (c *Check) validOnce() error {
	switch o := &c.Once; {
	case o.ID == 0:
		return nil
	case o.For < MinOnce || o.For > MaxOnce || o.For%time.Microsecond != 0:
		return fmt.Errorf("an idempotency record for %v, want %v to %v in whole microseconds", o.For, MinOnce, MaxOnce)
	case o.Repeats < 1 || o.Repeats > MaxRepeats:
		return fmt.Errorf("an idempotency record for %d repeats, want 1 to %d", o.Repeats, MaxRepeats)
	case c.Mode.Unconditional():
		return fmt.Errorf("a check of mode %v is charged each time, so it has no idempotency record", c.Mode)
	case c.Limit.Policy == InFlight:
		return errors.New("a check in flight has no idempotency record: its stream holds the cost once")
	case HashTag(c.Key) == c.Key:
		return errors.New("an idempotency record must be on the slot of its log, so the key needs a hash tag")
	}
	return nil
}
