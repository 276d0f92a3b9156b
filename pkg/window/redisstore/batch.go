package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// What the script takes and answers for each check; take.lua says what the
// fields are.
const (
	instantBytes = 7
	checkBytes   = 1 + 1 + 2 + 6 + 6 + 4 + 5 + 4 + 4
	answerBytes  = 1 + 4 + 7 + 7 + 7

	// Flags of a group, on its last check.
	groupEnds    = 1
	groupDenied  = 2
	groupAny     = 4
	groupAnyRoom = 8

	outcomeAllowed = 1
	outcomeNever   = 2
	outcomeLate    = 3
	outcomeForeign = 4 // added

	// coarseAbove is the longest window whose log counts in microseconds; above
	// it counts in milliseconds. Part of package window's layout.
	coarseAbove = 6 * 24 * time.Hour
	coarse      = 1000

	// maxMicros is the longest wait that a time.Duration can hold.
	maxMicros = math.MaxInt64 / 1000
)

// A batch is what one call of the script decides.
type batch struct {
	asked []asked
	same  []same
}

// An asked is a check that needs a log.
type asked struct {
	check *window.Check
	to    *window.Decision
	group byte // flags

	keyEnd int // of all keys in one string
}

// A same is a decision that is another's: their checks were folded.
type same struct{ from, to *window.Decision }

// add adds a valid call. What needs no log is decided at once.
func (b *batch) add(c *Call) {
	checks, answer := window.Fold(c.Checks)
	decisions := c.Decisions
	if answer != nil {
		decisions = make([]window.Decision, len(checks))
		for i, j := range answer {
			b.same = append(b.same, same{&decisions[j], &c.Decisions[i]})
		}
	}
	before := len(b.asked)
	group := byte(groupEnds)
	unconditional := false
	for i := range checks {
		unconditional = unconditional || checks[i].Mode.Unconditional()
	}
	if unconditional {
		// The script takes the checks as they come, and these come first.
		group |= b.addOf(window.Refund, checks, decisions)
		group |= b.addOf(window.Always, checks, decisions)
	}
	for i := range checks {
		if !checks[i].Mode.Unconditional() {
			group |= b.addCheck(&checks[i], &decisions[i])
		}
	}
	if len(b.asked) > before {
		b.asked[len(b.asked)-1].group = group
	}
}

// addOf adds the checks of a mode, and returns what they add to their group's
// flags.
func (b *batch) addOf(m window.Mode, checks []window.Check, decisions []window.Decision) (group byte) {
	for i := range checks {
		if checks[i].Mode == m {
			group |= b.addCheck(&checks[i], &decisions[i])
		}
	}
	return group
}

// addCheck adds a check, or decides it if it needs no log and returns what that
// means to its group.
func (b *batch) addCheck(c *window.Check, d *window.Decision) (group byte) {
	answer, ok := window.WithoutLog(c)
	if !ok {
		b.asked = append(b.asked, asked{check: c, to: d})
		return 0
	}
	*d = answer
	switch {
	case c.Mode == window.Any && answer.Allowed:
		return groupAnyRoom
	case c.Mode == window.Any:
		return groupAny
	case c.Mode == window.Enforce && !answer.Allowed:
		return groupDenied
	}
	return 0
}

// arguments appends the script's keys and arguments. They are cut from one
// string, so that there is one to allocate.
func (b *batch) arguments(args []any, prefix string) []any {
	const windowDigits = len(":34560000000000")
	size := instantBytes
	for i := range b.asked {
		size += len(prefix) + len(b.asked[i].check.Key) + windowDigits + checkBytes
	}
	all := make([]byte, 0, size)
	for i := range b.asked {
		all = appendKey(all, prefix, b.asked[i].check.Log())
		b.asked[i].keyEnd = len(all)
	}
	all = append(all, make([]byte, instantBytes)...) // no deadline
	for i := range b.asked {
		all = appendCheck(all, b.asked[i].check, b.asked[i].group)
	}

	text, at := string(all), 0
	for i := range b.asked {
		args = append(args, text[at:b.asked[i].keyEnd])
		at = b.asked[i].keyEnd
	}
	return append(args, text[at:])
}

// appendKey appends the name of a log's key.
func appendKey(b []byte, prefix string, id window.LogID) []byte {
	b = append(b, prefix...)
	b = append(b, id.Key...)
	b = append(b, ':')
	return strconv.AppendInt(b, id.Window.Microseconds(), 10)
}

// appendCheck appends a check as take.lua reads it.
func appendCheck(b []byte, c *window.Check, group byte) []byte {
	var (
		win       = c.Limit.Window.Microseconds()
		unit      = int64(1)
		precision = (c.Precision + time.Microsecond - 1).Microseconds() // rounded up
		most      = min(c.Limit.Hits, math.MaxUint32)
	)
	if c.Limit.Window > coarseAbove {
		unit = coarse
	}
	step := max((precision+unit-1)/unit, 1) * unit
	if precision > 1 {
		most = min(most, uint64(win/precision)+2)
	}
	b = append(b, byte(c.Mode), group)
	b = binary.BigEndian.AppendUint16(b, uint16(unit))
	b = appendUint48(b, uint64(win))
	b = appendUint48(b, uint64(step))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Limit.Hits))
	// No log holds more than 2^32-1, so all costs above are alike.
	cost := min(c.Cost, math.MaxUint32+1)
	b = append(b, byte(cost>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(cost))
	b = binary.BigEndian.AppendUint32(b, uint32(most))
	return binary.BigEndian.AppendUint32(b, 0) // ahead
}

// appendUint48 appends six bytes.
func appendUint48(b []byte, n uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(n>>32))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// answer fills in the decisions from the script's reply, of which anything that
// take.lua does not promise is an error. It tells foreign of values thrown away.
func (b *batch) answer(reply any, foreign func(win time.Duration)) error {
	text, ok := reply.(string)
	if !ok {
		return fmt.Errorf("reply is %T, want a string of %d bytes", reply, len(b.asked)*answerBytes+instantBytes)
	}
	if len(b.asked) > 0 && len(text) != len(b.asked)*answerBytes+instantBytes {
		return fmt.Errorf("reply has %d bytes, want %d for each of %d checks and %d", len(text), answerBytes, len(b.asked), instantBytes)
	}
	for i := range b.asked {
		thrownAway, err := decode(text[i*answerBytes:][:answerBytes], b.asked[i].to)
		if err != nil {
			return fmt.Errorf("reply to check %d: %w", i, err)
		}
		if thrownAway {
			foreign(b.asked[i].check.Limit.Window)
		}
	}
	for _, s := range b.same {
		*s.to = *s.from
	}
	return nil
}

// decode reads the answer to one check, which has answerBytes bytes.
func decode(answer string, d *window.Decision) (foreign bool, err error) {
	outcome := answer[0]
	if outcome >= outcomeForeign {
		foreign = true
		outcome -= outcomeForeign
	}
	if outcome > outcomeNever {
		return false, fmt.Errorf("the outcome is %d, want 0 to 2 or 4 to 6", answer[0])
	}
	var waits [3]time.Duration
	for i := range waits {
		micros := bigEndian(answer[5+7*i:][:7])
		if micros > maxMicros {
			return false, fmt.Errorf("a wait of %d microseconds is too long", micros)
		}
		waits[i] = time.Duration(micros) * time.Microsecond
	}
	*d = window.Decision{
		Allowed:    outcome == outcomeAllowed,
		Never:      outcome == outcomeNever,
		Remaining:  bigEndian(answer[1:5]),
		RetryAfter: waits[0],
		UnitAfter:  waits[1],
		ResetAfter: waits[2],
	}
	return foreign, nil
}

// bigEndian reads a number of up to eight bytes.
func bigEndian(text string) (n uint64) {
	for i := range len(text) {
		n = n<<8 | uint64(text[i])
	}
	return n
}
