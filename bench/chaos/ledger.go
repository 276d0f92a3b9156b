package main

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/test/servers"
)

// clockSlack bounds the error of two processes that read the clock of one machine. Redis
// reads the clock only once for each script.
const clockSlack = time.Millisecond

// ledger compares charges with answers.
type ledger struct {
	charges int // in Redis
	exact   int // answers that say they were charged
	// missing charges are of exact answers and not in Redis. lost ones are too, but
	// Redis has lost them together with others, as a restart does.
	missing, lost int
	// Ghosts are charges of calls that on_store_error decided. Those atFault were under way at the
	// moment of a fault. Those unnoticed were sent while the fault lasted and the server was still
	// asked. Those beyond began and ended while the server was not asked at all. Strays were sent
	// before or after the fault: something else was slow.
	atFault, unnoticed, beyond, strays int
	// late are charges made after the caller had its answer.
	late int
	// double are charges beyond the one that a call may make, and those that belong
	// to no call.
	double int
}

// span is a time from and to.
type span struct{ from, to time.Time }

func (s span) has(t time.Time) bool { return !t.Before(s.from) && !t.After(s.to) }

// A history is the times of what happened to the servers.
type history struct {
	fault      span
	moments    []span    // of things that calls under way may not survive
	unasked    []span    // while the service asked no server
	lostBefore time.Time // what was charged before may be gone
}

// compareLedger compares answers with charges.
func compareLedger(answers [][]answer, charges map[int][]charge, h history) (l ledger) {
	for id, calls := range answers {
		counts := make([]int, len(calls))
		for _, c := range charges[id] {
			l.charges += c.cost
			i := callAt(calls, c.at)
			if i < 0 { // before the first call
				l.double += c.cost
				continue
			}
			counts[i] += c.cost
			if c.at.After(calls[i].received.Add(clockSlack)) {
				l.late += c.cost
			}
		}
		for i := range calls {
			a, n := &calls[i], counts[i]
			l.double += max(n-1, 0)
			switch {
			case a.exact() && a.allowed:
				l.exact++
				switch {
				case n > 0:
				case a.sent.Before(h.lostBefore):
					l.lost++
				default:
					l.missing++
				}
			case n == 0:
			case a.exact(): // denied is free
				l.double++
			case slices.ContainsFunc(h.moments, func(m span) bool { return a.during(m.from, m.to) }):
				l.atFault++
			case slices.ContainsFunc(h.unasked, func(u span) bool { return u.has(a.sent) && u.has(a.received) }):
				l.beyond++
			case h.fault.has(a.sent):
				l.unnoticed++
			default:
				l.strays++
			}
		}
	}
	return l
}

// callAt returns the index of the call that made a charge at a time, or -1. It is the last call
// before that time, or the next one if that fits better.
func callAt(calls []answer, at time.Time) int {
	next := sort.Search(len(calls), func(i int) bool { return calls[i].sent.UnixMicro() > at.UnixMicro() })
	late := next == 0 || at.UnixMicro() > calls[next-1].received.UnixMicro()
	if late && next < len(calls) && !calls[next].sent.After(at.Add(clockSlack)) {
		return next
	}
	return next - 1
}

// A charge is the entry of a log at one instant.
type charge struct {
	at   time.Time
	cost int
}

// readCharges reads the logs of all callers from the servers that have them.
func readCharges(masters []*servers.RedisServer) (map[int][]charge, error) {
	all := make(map[int][]charge)
	for _, s := range masters {
		// The pattern has the window too. The store probes a failed server with another log,
		// and its name has the hash tag of a caller's log.
		keys, err := s.Do("KEYS", fmt.Sprintf("%s*:%d", keyPrefix, largeWindow.Microseconds()))
		if err != nil {
			return nil, err
		}
		for key := range strings.FieldsSeq(keys) {
			id, err := callerOf(key)
			if err != nil {
				return nil, err
			}
			value, err := s.Do("GET", key)
			if err != nil {
				return nil, err
			}
			log, err := packed.Decode([]byte(value))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			for _, e := range log.Entries {
				all[id] = append(all[id], charge{at: time.UnixMicro(e.At.Microseconds()), cost: int(e.Cost)})
			}
		}
	}
	return all, nil
}

// callerOf returns the caller of the log with a key.
func callerOf(key string) (int, error) {
	name := callerName(0)
	at := strings.Index(key, strings.TrimRight(name, "0"))
	if at < 0 || len(key) < at+len(name) {
		return 0, fmt.Errorf("the key %q belongs to no caller", key)
	}
	return strconv.Atoi(key[at+len(name)-4 : at+len(name)])
}

// versionOf asks a server for the version of Redis.
func versionOf(s *servers.RedisServer) (string, error) {
	info, err := s.Do("INFO", "server")
	_, after, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(after, "\r")
	return version, err
}
