package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidegate/slidegate/pkg/window"
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
	// ghosts are charges of calls that on_store_error decided.
	ghosts ghosts
	// late are charges made after the caller had its answer.
	late int
	// double are charges beyond the one that a call may make, and those that belong
	// to no call.
	double int
	// odd are the calls that are counted above, without the exact ones.
	odd []oddity
}

// An oddity is a call whose answer and charge differ.
type oddity struct {
	what    string
	answer  answer
	charges []charge // of the call
}

// ghosts are charges of calls that were answered without them, by when the calls
// were sent.
type ghosts struct {
	// atFault were under way at the moment of a fault.
	atFault int
	// unnoticed were sent while the fault lasted and the server was still asked.
	unnoticed int
	// beyond began and ended while the server was not asked at all.
	beyond int
	// strays were sent before or after the fault: something else was slow.
	strays int
}

func (g ghosts) all() int { return g.atFault + g.unnoticed + g.beyond + g.strays }

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
func compareLedger(answers [][]answer, charges map[int][]charge, h history) ledger {
	var l ledger
	for id, calls := range answers {
		made := charges[id]
		counts := make([]int, len(calls))
		own := make([][]charge, len(calls))
		odd := func(i int, what string) { l.odd = append(l.odd, oddity{what, calls[i], own[i]}) }
		for _, c := range made {
			l.charges += c.cost
			i := callAt(calls, c.at)
			if i >= 0 && calls[i].exact() && calls[i].allowed && counts[i] == 0 && !c.at.After(calls[i].received.Add(clockSlack)) {
				counts[i]++
				own[i] = append(own[i], charge{c.at, 1})
				c.cost-- // what is left was charged at the same instant
			}
			if c.cost == 0 {
				continue
			}
			if i < 0 {
				l.double += c.cost
				l.odd = append(l.odd, oddity{what: "before the first call", charges: []charge{c}})
				continue
			}
			counts[i] += c.cost
			own[i] = append(own[i], c)
			if c.at.After(calls[i].received.Add(clockSlack)) {
				l.late += c.cost
				odd(i, "late")
			}
		}
		for i := range calls {
			a, n := &calls[i], counts[i]
			if n > 1 {
				l.double += n - 1
				odd(i, "double")
			}
			switch {
			case a.exact() && a.allowed:
				l.exact++
				if n > 0 {
					break
				}
				if a.sent.Before(h.lostBefore) {
					l.lost++
					odd(i, "lost")
				} else {
					l.missing++
					odd(i, "missing")
				}
			case a.exact(): // denied is free
				if n > 0 {
					l.double++
					odd(i, "denied and charged")
				}
			case n > 0:
				switch {
				case slices.ContainsFunc(h.moments, func(m span) bool { return a.during(m.from, m.to) }):
					l.ghosts.atFault++
					odd(i, "ghost at the fault")
				case slices.ContainsFunc(h.unasked, func(u span) bool { return u.has(a.sent) && u.has(a.received) }):
					l.ghosts.beyond++
					odd(i, "ghost beyond")
				case h.fault.has(a.sent):
					l.ghosts.unnoticed++
					odd(i, "ghost before the fault was noticed")
				default:
					l.ghosts.strays++
					odd(i, "stray ghost")
				}
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

// inFlight counts the calls that were under way at any of the moments.
func inFlight(answers [][]answer, moments []span) int {
	n := 0
	for _, calls := range answers {
		for i := range calls {
			if slices.ContainsFunc(moments, func(m span) bool { return calls[i].during(m.from, m.to) }) {
				n++
			}
		}
	}
	return n
}

// A charge is the entry of a log at one instant.
type charge struct {
	at   time.Time
	cost int
}

// readCharges reads the logs of all callers from the servers that have them.
func readCharges(ctx context.Context, addresses []string) (map[int][]charge, error) {
	all := make(map[int][]charge)
	for _, address := range addresses {
		client := plainClient(address)
		err := readServer(ctx, client, all)
		if err = closing(client, err); err != nil {
			return nil, fmt.Errorf("reading the logs of %s: %w", address, err)
		}
	}
	return all, nil
}

func readServer(ctx context.Context, client *redis.Client, all map[int][]charge) error {
	// The pattern has the window too. The store probes a failed server with a log of its own,
	// and its name has the hash tag of a caller's log.
	keys := client.Scan(ctx, 0, fmt.Sprintf("%s*:%d", keyPrefix, largeWindow.Microseconds()), 10_000).Iterator()
	for keys.Next(ctx) {
		id, err := callerOf(keys.Val())
		if err != nil {
			return err
		}
		if len(all[id]) > 0 {
			continue // SCAN may tell a key twice
		}
		if all[id], err = readLog(ctx, client, keys.Val()); err != nil {
			return err
		}
	}
	return keys.Err()
}

// readLog reads one log, which may not be there.
func readLog(ctx context.Context, client redis.UniversalClient, key string) ([]charge, error) {
	value, err := client.Get(ctx, key).Bytes()
	if err != nil {
		return nil, err
	}
	log, err := window.Decode(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	charges := make([]charge, len(log.Entries))
	for i, e := range log.Entries {
		charges[i] = charge{at: time.UnixMicro(e.At.Microseconds()), cost: int(e.Cost)}
	}
	return charges, nil
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

// plainClient returns a client of one server, with a long timeout.
func plainClient(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     address,
		Protocol:                 2,
		MaxRetries:               -1,
		ReadTimeout:              10 * time.Second,
		DisableIdentity:          true,
		MaintNotificationsConfig: noNotifications,
	})
}

// noNotifications: plain servers refuse them.
var noNotifications = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// versionOf asks a server for the version of Redis.
func versionOf(ctx context.Context, address string) (string, error) {
	client := plainClient(address)
	info, err := client.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], closing(client, err)
}

// closing closes a client and returns the first error.
func closing(client *redis.Client, err error) error {
	if closed := client.Close(); err == nil {
		return closed
	}
	return err
}
