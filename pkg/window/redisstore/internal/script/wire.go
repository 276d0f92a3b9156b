package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// The sizes of what the script takes and answers for each check. take.lua explains the
// fields.
const (
	InstantBytes = 7
	CheckBytes   = 1 + 1 + 2 + 6 + 6 + 7 + 7 + 4 + 4
	atStep       = 1 + 1 + 2 + 6
	AnswerBytes  = 1 + 7 + 7 + 7 + 7

	// Flags of a check, on its mode.
	Reserves = 8   // its charge may be taken back
	Asks     = 16  // asks whether the answer may count hits that are taken back
	Dated    = 32  // the group has calendars: on its first check
	Restores = 64  // a refund in one period alone
	repeats  = 128 // a later check of the call has the same log: see MarkRepeats

	// Flags of a group, on its last check.
	GroupEnds    = 1
	groupDenied  = 2
	groupAny     = 4
	groupAnyRoom = 8

	OutcomeAllowed   = 1
	outcomeNever     = 2
	outcomeUnjudged  = 3  // the group was neither judged nor charged
	OutcomeCorrupt   = 4  // added
	OutcomeUnsettled = 8  // added
	OutcomeCut       = 16 // added

	// MaxMicros is the longest wait that a time.Duration can hold.
	MaxMicros = math.MaxInt64 / 1000
)

// AppendCheck appends a check as take.lua reads it.
func AppendCheck(b []byte, c *window.Check, group, flags byte, ahead uint32) []byte {
	unit, step, most, ahead := uint16(c.Limit.Policy)+1, uint64(0), uint32(0), ahead
	switch p := &c.Period; c.Limit.Policy {
	case window.Sliding:
		unit, step, most = slidingFields(c)
	case window.TokenBucket:
		most = c.Limit.Rate
	case window.Calendar:
		step, most, ahead = uint64(p.End), uint32(p.End-p.Start), uint32(p.Next-p.End)
	case window.InFlight, budgetHolds:
		step, most = uint64(c.Stream)>>16, uint32(c.Stream&0xffff)
	}
	b = append(b, byte(c.Mode)|flags, group)
	b = binary.BigEndian.AppendUint16(b, unit)
	b = appendUint48(b, uint64(c.Limit.Window.Microseconds()))
	b = appendUint48(b, step)
	b = appendUint56(b, c.Limit.Hits)
	// No log holds more than 2^53-1 hits, so all higher costs have the same answer.
	b = appendUint56(b, min(c.Cost, 1<<53))
	b = binary.BigEndian.AppendUint32(b, most)
	return binary.BigEndian.AppendUint32(b, ahead)
}

// MarkRepeats marks each packed check of a call that has a sliding log which a later check has too. keys are the strings of
// KEYS, one for each check.
func MarkRepeats(checks []byte, keys []any) {
	if len(keys) < 2 {
		return
	}
	later := keySets.Get().(map[any]struct{})
	for i := len(keys) - 1; i >= 0; i-- {
		check := checks[i*CheckBytes:][:CheckBytes]
		if unit := binary.BigEndian.Uint16(check[2:]); unit > 1 && unit < 1000 {
			continue
		}
		if _, ok := later[keys[i]]; ok {
			check[0] |= repeats
		} else {
			later[keys[i]] = struct{}{}
		}
	}
	clear(later)
	keySets.Put(later)
}

var keySets = sync.Pool{New: func() any { return make(map[any]struct{}) }}

// PutRestores makes a packed refund one of the period that ends at an instant alone: in the
// fields step and ahead.
func PutRestores(check []byte, ends int64) {
	appendUint48(check[:atStep], uint64(ends))
	binary.BigEndian.PutUint32(check[CheckBytes-4:], uint32(ends>>48))
}

// slidingFields returns the fields of a check that only the sliding log has.
func slidingFields(c *window.Check) (unit uint16, step uint64, slots uint32) {
	var (
		win       = c.Limit.Window.Microseconds()
		micros    = packed.Unit(c.Limit.Window).Microseconds()
		precision = (c.Precision + time.Microsecond - 1).Microseconds() // rounded up
		most      = c.Limit.Hits
	)
	if precision > 1 {
		most = min(most, uint64(win/precision)+2)
	}
	return uint16(micros), uint64(max((precision+micros-1)/micros, 1) * micros), uint32(most)
}

// appendUint48 appends six bytes.
func appendUint48(b []byte, n uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(n>>32))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// appendUint56 appends seven bytes.
func appendUint56(b []byte, n uint64) []byte { return appendUint48(append(b, byte(n>>48)), n) }

// AppendInstant appends seven bytes.
func AppendInstant(b []byte, n int64) []byte { return appendUint56(b, uint64(n)) }

// An answered is the answer to one check.
type answered struct {
	decision window.Decision
	corrupt  bool // the value was not a log, and was removed
	made     bool // in flight: the stream holds the cost since now
}

// decode reads the answer to one check, which has AnswerBytes bytes.
func decode(answer string, inFlight bool) (a answered, err error) {
	outcome := answer[0] &^ (OutcomeUnsettled | OutcomeCorrupt | OutcomeCut)
	unsettled := answer[0]&OutcomeUnsettled != 0
	if outcome > outcomeNever || unsettled && outcome == outcomeNever {
		return a, fmt.Errorf("the outcome is %d, which is unknown", answer[0])
	}
	var waits [3]time.Duration
	for i := range waits {
		micros := BigEndian(answer[8+7*i:][:7])
		if micros > MaxMicros {
			return a, fmt.Errorf("a wait of %d microseconds is too long", micros)
		}
		waits[i] = time.Duration(micros) * time.Microsecond
	}
	a.corrupt = answer[0]&OutcomeCorrupt != 0
	d := &a.decision
	*d = window.Decision{
		Allowed:    outcome == OutcomeAllowed,
		Never:      outcome == outcomeNever,
		Remaining:  BigEndian(answer[1:8]),
		RetryAfter: waits[0],
		UnitAfter:  waits[1],
		ResetAfter: waits[2],
		Unsettled:  unsettled,
		Cut:        answer[0]&OutcomeCut != 0,
	}
	if inFlight {
		if d.Allowed {
			a.made, d.RetryAfter = waits[0] > 0, 0
		}
		// Streams usually end before their holds expire.
		d.Unsettled = !d.Never && (!d.Allowed || d.Remaining == 0)
	}
	return a, nil
}

// appendOnceRecordCheck appends what oncerecords.lua needs for the idempotency record of a check.
func appendOnceRecordCheck(b []byte, c *window.Check) []byte {
	of := window.Check{Mode: window.Observe, Cost: c.Cost}
	of.Limit = window.Limit{Policy: onceRecords, Window: c.Once.For}
	at := len(b)
	b = AppendCheck(b, &of, 0, 0, 0)
	binary.BigEndian.PutUint32(b[at+CheckBytes-8:], uint32(c.Once.Repeats))
	return b
}

// What the script takes for the policy of an idempotency record, and of what is reserved of a budget.
const (
	onceRecords = window.InFlight + 1
	budgetHolds = window.InFlight + 2
)

// PackPair returns the two checks of a check with a budget, as a stream's record has them: see holds.lua.
func PackPair(c *window.Check) string {
	return string(AppendCheck(appendHoldsCheck(nil, c, 0), c, 0, 0, 0))
}

// appendHoldsCheck appends what holds.lua needs for the holds of the log of a check with a budget.
func appendHoldsCheck(b []byte, c *window.Check, ended uint32) []byte {
	of := window.Check{Mode: window.Observe, Cost: c.Cost, Stream: c.Stream}
	of.Limit = window.Limit{Policy: budgetHolds, Window: c.Budget.Hold, Hits: c.Budget.PerMillionBytes()}
	return AppendCheck(b, &of, 0, 0, ended)
}

// Skipped says why the script has neither judged nor charged a group.
type Skipped byte

// The reasons. Judged: the check was judged, so there is no reason.
const (
	Judged       Skipped = iota
	Late                 // it came after its deadline
	PutOff               // too many full rings had to move for it; some of them have moved now
	OtherPeriods         // the periods of a calendar contradict the server's clock
)

// SkippedFor returns why the script has Skipped the message, from its reply.
func SkippedFor(reply string) Skipped {
	if len(reply) < AnswerBytes || reply[0] != outcomeUnjudged {
		return Judged
	}
	switch BigEndian(reply[1:8]) {
	case 1:
		return PutOff
	case 2:
		return OtherPeriods
	default:
		return Late
	}
}

// PackTakeBack returns what takeback.lua needs to take back up to cost of a reservation.
func PackTakeBack(r window.Reservation, cost uint64) string {
	b := binary.BigEndian.AppendUint16(nil, uint16(packed.Unit(r.Window).Microseconds()))
	b = appendUint48(b, uint64(r.Window.Microseconds()))
	b = AppendInstant(b, r.Instant)
	b = append(b, byte(cost>>32))
	return string(binary.BigEndian.AppendUint32(b, uint32(cost)))
}

// ReadTaken reads the reply of takeback.lua: what it has taken back of a cost, and the wait until
// the log is empty.
func ReadTaken(reply string, cost uint64) (taken uint64, reset time.Duration, err error) {
	if len(reply) != 5+7 {
		return 0, 0, fmt.Errorf("reply has %d bytes, want %d", len(reply), 5+7)
	}
	micros := BigEndian(reply[5:])
	if taken = BigEndian(reply[:5]); taken > cost || micros > MaxMicros {
		return 0, 0, fmt.Errorf("%d hits were taken back of %d, and the log is empty after %d microseconds", taken, cost, micros)
	}
	return taken, time.Duration(micros) * time.Microsecond, nil
}

// ReadLogs reads the reply of inspect.lua to a call with so many keys: the server's clock in
// microseconds, and the bytes of the logs.
func ReadLogs(reply any, keys int) (clock int64, logs []string, err error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 1+keys {
		return 0, nil, fmt.Errorf("reply is %T of %d parts, want %d", reply, len(parts), 1+keys)
	}
	at, ok := parts[0].(string)
	if !ok || len(at) != InstantBytes || BigEndian(at) > MaxMicros {
		return 0, nil, errors.New("reply has no clock")
	}
	logs = make([]string, keys)
	for i, p := range parts[1:] {
		if logs[i], ok = p.(string); !ok {
			return 0, nil, fmt.Errorf("reply has a %T, want the bytes of a log", p)
		}
	}
	return int64(BigEndian(at)), logs, nil
}

// BigEndian reads a number of up to eight bytes.
func BigEndian(text string) (n uint64) {
	for i := range len(text) {
		n = n<<8 | uint64(text[i])
	}
	return n
}
