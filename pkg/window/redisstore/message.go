package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// The sizes of what the script takes and answers for each check. take.lua explains the
// fields.
const (
	instantBytes = 7
	checkBytes   = 1 + 1 + 2 + 6 + 6 + 4 + 5 + 4 + 4
	atStep       = 1 + 1 + 2 + 6
	answerBytes  = 1 + 4 + 7 + 7 + 7

	// Flags of a check, on its mode.
	modeReserves = 8  // its charge may be taken back
	modeAsks     = 16 // asks whether the answer may count hits that are taken back
	modeDated    = 32 // the group has calendars: on its first check
	modeRestores = 64 // a refund in one period alone

	// Flags of a group, on its last check.
	groupEnds    = 1
	groupDenied  = 2
	groupAny     = 4
	groupAnyRoom = 8

	outcomeAllowed   = 1
	outcomeNever     = 2
	outcomeUnjudged  = 3  // the group was neither judged nor charged
	outcomeForeign   = 4  // added
	outcomeUnsettled = 8  // added
	outcomeCut       = 16 // added

	// maxMicros is the longest wait that a time.Duration can hold.
	maxMicros = math.MaxInt64 / 1000
)

// A message is a group on its way to a node and back. The caller and the sender share it.
// Either may be done first: state says which. The one that is done last frees it.
type message struct {
	// The request. The caller writes it before the sender gets the message.
	logChecks []logCheck
	same      []same
	keys      []string
	checks    []byte // packed, without the soonest deadline
	scratch   []byte
	tag       string          // on a cluster
	deadline  int64           // of the local clock, 0: none
	patient   bool            // the deadline is the store's timeout, not an earlier one
	charges   bool            // it charges something if it is allowed
	inFlight  bool            // it has a check in flight
	ahead     uint32          // microseconds
	ended     uint32          // on a cluster: for how many milliseconds more its stream is denied
	restores  int64           // with modeRestores: when the period of the charge ends, in microseconds
	flags     byte            // added to the mode of every check
	priority  window.Priority // the highest of its request

	// The result. The sender writes it before it sends to done.
	reply string // the answers to its checks
	clock int64  // the server's clock when it decided, in microseconds
	err   error
	again bool // it was sent a second time, because the first call did nothing
	batch int  // how many messages the call of the script had
	state atomic.Int32
	done  chan struct{}
}

// States of a message.
const (
	queued int32 = iota
	sent
	answered // the result is in done
	left     // the caller has gone
)

// A logCheck is a check that needs a log.
type logCheck struct {
	check *window.Check
	to    *window.Decision
	made  bool // in flight: the stream holds the cost since now
	// receipt says that this is about the receipt of the next check, which has the same check.
	receipt bool
}

// A same says that the decision at to equals the one at from: their checks were folded.
type same struct{ from, to *window.Decision }

var messages = sync.Pool{New: func() any { return &message{priority: window.PriorityLow, done: make(chan struct{}, 1)} }}

func newMessage() *message { return messages.Get().(*message) }

// free empties the message and returns it to the pool.
func (m *message) free() {
	clear(m.logChecks)
	clear(m.same)
	clear(m.keys)
	m.logChecks, m.same, m.keys, m.checks = m.logChecks[:0], m.same[:0], m.keys[:0], m.checks[:0]
	m.tag, m.deadline, m.patient, m.charges, m.inFlight, m.ahead, m.restores, m.flags = "", 0, false, false, false, 0, 0, 0
	m.priority = window.PriorityLow
	m.reply, m.clock, m.err, m.again, m.batch, m.ended = "", 0, nil, false, 0, 0
	m.state.Store(queued)
	messages.Put(m)
}

// begin marks the message as sent. It returns false if the caller has left; the sender must
// then free the message.
func (m *message) begin() bool { return m.state.CompareAndSwap(queued, sent) }

// finish hands the message back to its caller. If the caller has left, it frees it.
func (m *message) finish(reply string, clock int64, err error) {
	m.reply, m.clock, m.err = reply, clock, err
	if m.state.CompareAndSwap(sent, answered) {
		m.done <- struct{}{}
		return
	}
	m.free()
}

// leave marks that the caller waits no longer. It returns false if the answer has come after
// all.
func (m *message) leave() bool {
	if m.state.CompareAndSwap(queued, left) || m.state.CompareAndSwap(sent, left) {
		return true
	}
	<-m.done
	return false
}

// add adds a valid group. It decides checks that need no log at once.
func (m *message) add(prefix string, checks []window.Check, decisions []window.Decision) {
	to := decisions
	folded, answer := window.Fold(checks)
	if answer != nil {
		to = make([]window.Decision, len(folded))
		for i, j := range answer {
			m.same = append(m.same, same{&to[j], &decisions[i]})
		}
	}
	group := byte(groupEnds)
	unconditional := false
	for i := range folded {
		unconditional = unconditional || folded[i].Mode.Unconditional()
		if folded[i].Lease.Length > 0 {
			m.flags |= modeAsks // other processes may have reserved hits and give them back
		}
	}
	if unconditional {
		// The script decides the checks in their order, and these must be first.
		group |= m.addOf(window.Refund, folded, to)
		group |= m.addOf(window.Always, folded, to)
	}
	for i := range folded {
		if !folded[i].Mode.Unconditional() {
			group |= m.addCheck(&folded[i], &to[i])
		}
	}
	m.pack(prefix, group)
}

// smallLog is how many hits a sliding log has at most that the script reads as a whole.
const smallLog = 13

// tooLong reports whether the script could have to search more than maxShared logs of the message.
func (m *message) tooLong() bool {
	if len(m.logChecks) <= maxShared {
		return false
	}
	searched := 0
	for i := range m.logChecks {
		l := &m.logChecks[i].check.Limit
		if l.Policy == window.InFlight || l.Policy == window.Sliding && l.Hits > smallLog {
			searched++
		}
	}
	return searched > maxShared
}

// addOf adds the checks of a mode, and returns the flags that they add to their group.
func (m *message) addOf(mode window.Mode, checks []window.Check, decisions []window.Decision) (group byte) {
	for i := range checks {
		if checks[i].Mode == mode {
			group |= m.addCheck(&checks[i], &decisions[i])
		}
	}
	return group
}

// addCheck adds a check. If the check needs no log, it decides it and returns the flags that
// it adds to its group.
func (m *message) addCheck(c *window.Check, d *window.Decision) (group byte) {
	m.priority = max(m.priority, c.Priority)
	answer, ok := window.WithoutLog(c)
	if !ok {
		if c.Receipts() {
			m.logChecks = append(m.logChecks, logCheck{check: c, receipt: true})
		}
		m.logChecks = append(m.logChecks, logCheck{check: c, to: d})
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

// pack writes the keys and the checks in the script's format.
func (m *message) pack(prefix string, group byte) {
	m.checks = m.checks[:0]
	dated := false
	for i := range m.logChecks {
		c := m.logChecks[i].check
		m.scratch = appendKey(m.scratch[:0], prefix, c.Log())
		if m.logChecks[i].receipt {
			m.scratch = appendReceipt(m.scratch, c.Once.ID)
			m.keys = append(m.keys, string(m.scratch))
			m.checks = appendReceiptCheck(m.checks, c)
			continue
		}
		m.keys = append(m.keys, string(m.scratch))
		m.charges = m.charges || c.Cost > 0
		dated = dated || c.Limit.Policy == window.Calendar && m.flags&modeRestores == 0
		flags := byte(0)
		if i == len(m.logChecks)-1 {
			flags = group
		}
		m.checks = appendCheck(m.checks, c, flags, m.flags, m.ahead)
		if c.Limit.Policy == window.InFlight {
			m.inFlight = true
			binary.BigEndian.PutUint32(m.checks[len(m.checks)-4:], m.ended)
		} else if m.flags&modeRestores != 0 && c.Limit.Policy != window.TokenBucket {
			putRestores(m.checks[len(m.checks)-checkBytes:], m.restores)
		}
	}
	if dated {
		m.checks[0] |= modeDated
	}
}

// answer fills in the decisions from the reply. It returns an error if the reply is not in
// the format of take.lua. It calls foreign for each value that the script removed. Only the
// caller of the message may call it.
func (m *message) answer(foreign func(win time.Duration)) error {
	for i := range m.logChecks {
		if m.logChecks[i].receipt {
			if m.reply[i*answerBytes]&outcomeForeign != 0 {
				foreign(m.logChecks[i].check.Once.For)
			}
			continue
		}
		removed, err := decode(m.reply[i*answerBytes:][:answerBytes], m.logChecks[i].to)
		if err != nil {
			return fmt.Errorf("reply to check %d: %w", i, err)
		}
		if removed {
			foreign(m.logChecks[i].check.Limit.Window)
		}
		if l := &m.logChecks[i]; l.check.Limit.Policy == window.InFlight {
			l.answerHold()
		}
		if i > 0 && m.logChecks[i-1].receipt {
			m.logChecks[i].to.Repeated = m.repeats(i - 1)
		}
	}
	m.fill()
	return nil
}

// repeats reports whether the check behind a receipt is a repeat.
func (m *message) repeats(receipt int) bool {
	return bigEndian(m.reply[receipt*answerBytes:][1:5]) != 0
}

// answerHold completes the answer to a check in flight.
func (l *logCheck) answerHold() {
	if l.to.Allowed {
		l.made, l.to.RetryAfter = l.to.RetryAfter > 0, 0
	}
	// Streams usually end before their holds expire.
	l.to.Unsettled = !l.to.Never && (!l.to.Allowed || l.to.Remaining == 0)
}

// fill copies decisions to the checks that were folded.
func (m *message) fill() {
	for _, s := range m.same {
		*s.to = *s.from
	}
}

// Why the script has neither judged nor charged a message.
type skipped byte

const (
	wasJudged      skipped = iota
	cameLate               // it came after its deadline
	wasPutOff              // too many full rings had to move for it; some of them have moved now
	ofOtherPeriods         // the periods of a calendar contradict the server's clock
)

// skippedFor returns why the script has skipped the message, from its reply.
func skippedFor(reply string) skipped {
	if len(reply) < answerBytes || reply[0] != outcomeUnjudged {
		return wasJudged
	}
	switch bigEndian(reply[1:5]) {
	case 1:
		return wasPutOff
	case 2:
		return ofOtherPeriods
	default:
		return cameLate
	}
}

// KeyName returns the name in Redis of a log, as [Options.Prefix] begins it.
func KeyName(prefix string, id window.LogID) string { return string(appendKey(nil, prefix, id)) }

// policyLetters are what the last part of a log's name begins with. The name of a sliding log
// has no letter.
var policyLetters = [...]string{
	window.Sliding: "", window.TokenBucket: "b", window.Fixed: "f", window.Calendar: "c",
	window.SlidingCounter: "w", window.InFlight: "h",
}

// appendKey appends the name of a log's key.
func appendKey(b []byte, prefix string, id window.LogID) []byte {
	b = append(b, prefix...)
	b = append(b, id.Key...)
	b = append(b, ':')
	b = append(b, policyLetters[id.Policy]...)
	if id.Policy == window.InFlight {
		return b // another hold time keeps the log
	}
	return strconv.AppendInt(b, id.Window.Microseconds(), 10)
}

// appendReceipt appends to the name of a log what names the receipt of a charge. [ParseKeyName] does
// not take the name for that of a log.
func appendReceipt(b []byte, id uint64) []byte { return fmt.Appendf(b, ":o%016x", id) }

// appendReceiptCheck appends what receipts.lua needs for the receipt of a check.
func appendReceiptCheck(b []byte, c *window.Check) []byte {
	of := window.Check{Mode: window.Observe, Cost: c.Cost}
	of.Limit = window.Limit{Policy: receipts, Window: c.Once.For}
	at := len(b)
	b = appendCheck(b, &of, 0, 0, 0)
	binary.BigEndian.PutUint32(b[at+checkBytes-8:], uint32(c.Once.Repeats))
	return b
}

// receipts is what the script takes for the policy of a receipt.
const receipts = window.InFlight + 1

// ParseKeyName is the reverse of [KeyName] with an empty prefix. It returns false if name is
// not the name of a log.
func ParseKeyName(name string) (id window.LogID, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 1 {
		return window.LogID{}, false
	}
	id.Key = name[:i]
	text := name[i+1:]
	for p, letter := range policyLetters {
		if digits, found := strings.CutPrefix(text, letter); found && letter != "" {
			id.Policy, text = window.Policy(p), digits
		}
	}
	if id.Policy == window.InFlight {
		return id, text == ""
	}
	if text == "" || text[0] < '0' || text[0] > '9' {
		return window.LogID{}, false
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > maxMicros {
		return window.LogID{}, false
	}
	id.Window = time.Duration(micros) * time.Microsecond
	return id, true
}

// appendCheck appends a check as take.lua reads it.
func appendCheck(b []byte, c *window.Check, group, flags byte, ahead uint32) []byte {
	unit, step, most, ahead := uint16(c.Limit.Policy)+1, uint64(0), uint32(0), ahead
	switch p := &c.Period; c.Limit.Policy {
	case window.Sliding:
		unit, step, most = slidingFields(c)
	case window.TokenBucket:
		most = c.Limit.Rate
	case window.Calendar:
		step, most, ahead = uint64(p.End), uint32(p.End-p.Start), uint32(p.Next-p.End)
	case window.InFlight:
		step, most = uint64(c.Stream)>>16, uint32(c.Stream&0xffff)
	}
	b = append(b, byte(c.Mode)|flags, group)
	b = binary.BigEndian.AppendUint16(b, unit)
	b = appendUint48(b, uint64(c.Limit.Window.Microseconds()))
	b = appendUint48(b, step)
	b = binary.BigEndian.AppendUint32(b, uint32(c.Limit.Hits))
	// No log holds more than 2^32-1 hits, and no bucket more than that and a debt of as many.
	// So all higher costs have the same answer.
	cost := min(c.Cost, 1<<33)
	b = append(b, byte(cost>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(cost))
	b = binary.BigEndian.AppendUint32(b, most)
	return binary.BigEndian.AppendUint32(b, ahead)
}

// putRestores makes a packed refund one of the period that ends at an instant alone: in the
// fields step and ahead.
func putRestores(check []byte, ends int64) {
	appendUint48(check[:atStep], uint64(ends))
	binary.BigEndian.PutUint32(check[checkBytes-4:], uint32(ends>>48))
}

// slidingFields returns the fields of a check that only the sliding log has.
func slidingFields(c *window.Check) (unit uint16, step uint64, slots uint32) {
	var (
		win       = c.Limit.Window.Microseconds()
		micros    = packed.Unit(c.Limit.Window).Microseconds()
		precision = (c.Precision + time.Microsecond - 1).Microseconds() // rounded up
		most      = min(c.Limit.Hits, math.MaxUint32)
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

// appendInstant appends seven bytes.
func appendInstant(b []byte, n int64) []byte {
	b = append(b, byte(n>>48))
	return appendUint48(b, uint64(n))
}

// decode reads the answer to one check, which has answerBytes bytes.
func decode(answer string, d *window.Decision) (foreign bool, err error) {
	outcome := answer[0]
	unsettled := outcome&outcomeUnsettled != 0
	foreign = outcome&outcomeForeign != 0
	cut := outcome&outcomeCut != 0
	outcome &^= outcomeUnsettled | outcomeForeign | outcomeCut
	if outcome > outcomeNever || unsettled && outcome == outcomeNever {
		return false, fmt.Errorf("the outcome is %d, which is unknown", answer[0])
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
		Unsettled:  unsettled,
		Cut:        cut,
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
