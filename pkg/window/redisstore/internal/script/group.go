package script

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Group is the checks of one request, as take.lua reads and answers them. The zero value is an
// empty group of normal priority; [Group.Reset] makes it the lowest, which [Group.Add] raises.
type Group struct {
	Keys   []string // of the logs, and of idempotency records
	Packed []byte   // the checks, without deadlines

	// What the script does with the checks. Set it before [Group.Add] or [Group.Pack].
	Flags     byte   // added to the mode of every check: Reserves, Asks, Restores
	Ahead     uint32 // microseconds
	Ended     uint32 // on a cluster: for how many milliseconds more its stream is denied
	PeriodEnd int64  // with Restores: when the period of the charge ends, in microseconds

	// What the checks are.
	Charges  bool            // they charge something if the group is allowed
	Searches int             // an estimate of how often the script searches logs: see MostSearches
	InFlight bool            // one is in flight
	Priority window.Priority // the highest

	logChecks []logCheck
	same      []same
	scratch   []byte
}

// Reset empties the group and keeps its memory.
func (g *Group) Reset() {
	clear(g.logChecks)
	clear(g.same)
	clear(g.Keys)
	*g = Group{
		Keys: g.Keys[:0], Packed: g.Packed[:0], Priority: window.PriorityLow,
		logChecks: g.logChecks[:0], same: g.same[:0], scratch: g.scratch,
	}
}

// A logCheck is a check that needs a log.
type logCheck struct {
	check *window.Check
	to    *window.Decision
	made  bool // in flight: the stream holds the cost since now
	// idempotency record says that this is about the idempotency record of the next check, which has the same check.
	onceRecord bool
	holds      bool // likewise about what is reserved of the log of the next check
}

// A same says that the decision at to equals the one at from: their checks were folded.
type same struct{ from, to *window.Decision }

// AddAll adds a valid request, and packs it. It decides checks that need no log at once.
func (g *Group) AddAll(prefix string, checks []window.Check, decisions []window.Decision) {
	to := decisions
	folded, answer := window.Fold(checks)
	if answer != nil {
		to = make([]window.Decision, len(folded))
		for i, j := range answer {
			g.same = append(g.same, same{&to[j], &decisions[i]})
		}
	}
	group := byte(GroupEnds)
	unconditional := false
	for i := range folded {
		unconditional = unconditional || folded[i].Mode.Unconditional()
		if folded[i].Lease.Length > 0 {
			g.Flags |= Asks // other processes may have reserved hits and give them back
		}
	}
	if unconditional {
		// The script decides the checks in their order, and these must be first.
		group |= g.addOf(window.Refund, folded, to)
		group |= g.addOf(window.Always, folded, to)
	}
	for i := range folded {
		if !folded[i].Mode.Unconditional() {
			group |= g.Add(&folded[i], &to[i])
		}
	}
	g.pack(prefix, group)
}

const (
	// smallLog is how many hits a sliding log has at most that the script reads as a whole.
	smallLog = 13

	// MostSearches is how often the script searches a log for one check at most. To admit or deny one hit it needs one search
	// if no more than the limit is used.
	MostSearches = 3
)

// SearchesMore reports whether the script could have to search more than most logs of the group.
func (g *Group) SearchesMore(most int) bool {
	if len(g.logChecks) <= most {
		return false
	}
	searched := 0
	for i := range g.logChecks {
		l := &g.logChecks[i].check.Limit
		if l.Policy == window.InFlight || l.Policy == window.Sliding && l.Hits > smallLog || g.logChecks[i].holds {
			searched++
		}
	}
	return searched > most
}

// addOf adds the checks of a mode, and returns the flags that they add to their group.
func (g *Group) addOf(mode window.Mode, checks []window.Check, decisions []window.Decision) (group byte) {
	for i := range checks {
		if checks[i].Mode == mode {
			group |= g.Add(&checks[i], &decisions[i])
		}
	}
	return group
}

// Add adds a check. If the check needs no log, it decides it and returns the flags that
// it adds to its group.
func (g *Group) Add(c *window.Check, d *window.Decision) (group byte) {
	g.Priority = max(g.Priority, c.Priority)
	answer, ok := window.WithoutLog(c)
	if !ok {
		if c.RecordsOnce() {
			g.logChecks = append(g.logChecks, logCheck{check: c, onceRecord: true})
		}
		if c.Budget != nil {
			g.logChecks = append(g.logChecks, logCheck{check: c, holds: true})
		}
		g.logChecks = append(g.logChecks, logCheck{check: c, to: d})
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

// Pack packs checks that were added one by one. denied says that the group is denied whatever they
// say.
func (g *Group) Pack(prefix string, denied bool) {
	group := byte(GroupEnds)
	if denied {
		group |= groupDenied
	}
	g.pack(prefix, group)
}

// pack writes the keys and the checks in the script's format.
func (g *Group) pack(prefix string, group byte) {
	g.Packed, g.Searches = g.Packed[:0], 0
	hasPeriods := false
	for i := range g.logChecks {
		c := g.logChecks[i].check
		if g.Searches++; c.Cost > 1 || c.Stream != 0 || c.Mode.Unconditional() {
			g.Searches += MostSearches - 1
		}
		g.scratch = AppendKey(g.scratch[:0], prefix, c.Log())
		if g.logChecks[i].onceRecord {
			g.scratch = appendOnceRecord(g.scratch, c.Once.ID)
			g.Keys = append(g.Keys, string(g.scratch))
			g.Packed = appendOnceRecordCheck(g.Packed, c)
			continue
		}
		if g.logChecks[i].holds {
			g.InFlight = true // the stream is remembered
			g.Keys = append(g.Keys, string(append(g.scratch, HoldsSuffix...)))
			g.Packed = appendHoldsCheck(g.Packed, c, g.Ended)
			continue
		}
		g.Keys = append(g.Keys, string(g.scratch))
		g.Charges = g.Charges || c.Cost > 0
		hasPeriods = hasPeriods || c.Limit.Policy == window.Calendar && g.Flags&Restores == 0
		flags := byte(0)
		if i == len(g.logChecks)-1 {
			flags = group
		}
		g.Packed = AppendCheck(g.Packed, c, flags, g.Flags, g.Ahead)
		if c.Limit.Policy == window.InFlight {
			g.InFlight = true
			binary.BigEndian.PutUint32(g.Packed[len(g.Packed)-4:], g.Ended)
		} else if g.Flags&Restores != 0 && c.Limit.Policy != window.TokenBucket {
			PutRestores(g.Packed[len(g.Packed)-CheckBytes:], g.PeriodEnd)
		}
	}
	if hasPeriods {
		g.Packed[0] |= Dated
	}
}

// Answer fills in the decisions from the script's reply. It returns an error if the reply is not
// in the format of take.lua. It calls corrupt for each value that the script removed.
func (g *Group) Answer(reply string, corrupt func(win time.Duration)) error {
	var all window.Verdict
	for i := range g.logChecks {
		l, answer := &g.logChecks[i], reply[i*AnswerBytes:][:AnswerBytes]
		if l.onceRecord {
			if answer[0]&OutcomeCorrupt != 0 {
				corrupt(l.check.Once.For)
			}
			continue
		}
		if l.holds {
			if answer[0]&OutcomeCorrupt != 0 {
				corrupt(l.check.Budget.Hold)
			}
			continue
		}
		a, err := decode(answer, l.check.Limit.Policy == window.InFlight)
		if err != nil {
			return fmt.Errorf("reply to check %d: %w", i, err)
		}
		if a.corrupt {
			corrupt(l.check.Limit.Window)
		}
		*l.to, l.made = a.decision, a.made
		if i > 0 && g.logChecks[i-1].onceRecord {
			l.to.Repeated = BigEndian(reply[(i-1)*AnswerBytes:][1:8]) != 0
		}
		if i > 0 && g.logChecks[i-1].holds {
			holds := reply[(i-1)*AnswerBytes:][1:29]
			full := BigEndian(holds[:7])
			l.made, l.to.Reserved = BigEndian(holds[7:14]) != 0, BigEndian(holds[14:21])
			l.to.Expired = window.Expired{Holds: full / 2, Units: BigEndian(holds[21:])}
			l.to.Repeated = l.to.Allowed && !l.made && l.check.Cost > 0
			l.to.Unsettled = !l.to.Never && (!l.to.Allowed || l.to.Remaining == 0)
			l.to.HoldsFull = !l.to.Allowed && !l.to.Never && max(l.check.Cost, 1) <= l.to.Remaining && full%2 != 0
		}
		all.Add(l.check.Mode, l.to.Allowed)
	}
	for i := range g.logChecks {
		if l := &g.logChecks[i]; l.to != nil && l.check.Budget != nil && !all.Allowed() {
			l.to.Repeated = false // it was not charged, because the group was denied
		}
	}
	g.Fill()
	return nil
}

// Made reports whether the stream of the only check holds its cost since this request.
func (g *Group) Made() bool { return g.logChecks[len(g.logChecks)-1].made }

// Writes reports whether the script has written, by the beginning of its reply.
func (g *Group) Writes(reply string) bool {
	if g.logChecks[0].onceRecord || g.logChecks[0].holds {
		reply = reply[AnswerBytes:] // a record has room also if its request is denied
	}
	return g.Charges && reply[0] == OutcomeAllowed
}

// Stream returns the stream of the group, or zero, the longest of its holds, and the names of the
// logs in which it may hold something. unconditional says that one check may find what another
// one made.
func (g *Group) Stream() (stream window.StreamID, hold time.Duration, logs []string, unconditional bool) {
	for i := range g.logChecks {
		c := g.logChecks[i].check
		if c.Stream == 0 {
			continue
		}
		unconditional = unconditional || c.Mode.Unconditional()
		switch l := &g.logChecks[i]; {
		case l.holds:
			stream, hold = c.Stream, max(hold, counts(c))
			if c.Cost > 0 {
				logs = append(logs, "\x01"+string(g.Packed[i*CheckBytes:(i+2)*CheckBytes])+g.Keys[i])
			}
		case c.Budget == nil:
			stream, hold = c.Stream, max(hold, c.Limit.Window)
			if c.Cost > 0 && c.Mode != window.Refund {
				logs = append(logs, "\x00"+g.Keys[i])
			}
		}
	}
	return stream, hold, logs, unconditional
}

// counts returns for how long a reservation may count.
func counts(c *window.Check) time.Duration {
	again := 2 * c.Limit.Window
	if c.Limit.Policy == window.TokenBucket {
		again = time.Duration(min(float64(again)*float64(c.Limit.Hits)/float64(c.Limit.Rate), float64(2*window.MaxWindow)))
	}
	return c.Budget.Hold + again
}

// SetEnded changes a packed group: its stream is denied for so many milliseconds more.
func (g *Group) SetEnded(millis uint32) {
	g.Ended = millis
	for i := range g.logChecks {
		if l := &g.logChecks[i]; l.holds || l.check.Stream != 0 && l.check.Budget == nil {
			binary.BigEndian.PutUint32(g.Packed[(i+1)*CheckBytes-4:], millis)
		}
	}
}

// Fill copies decisions to the checks that were folded.
func (g *Group) Fill() {
	for _, s := range g.same {
		*s.to = *s.from
		s.from.Expired = window.Expired{} // each is reported once
	}
}
