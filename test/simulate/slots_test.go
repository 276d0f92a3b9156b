package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
)

// A slotMap says which node of a cluster has each slot. The world's mu guards it.
type slotMap struct {
	owner  [slots]int
	target map[uint16]int  // of the slots that move: who has their values already
	sent   map[uint64]bool // calls that were redirected, by their hashes
}

// An owner is a server that has the values of a key since a moment.
type owner struct {
	since  time.Duration
	server *server
}

func (m *slotMap) begin(w *world) {
	m.target, m.sent = make(map[uint16]int), make(map[uint64]bool)
	for i := range m.owner {
		m.owner[i] = w.plan.nodeOf(uint16(i))
	}
	for _, k := range w.keys {
		k.owners = []owner{{-counted, w.servers[k.Server]}}
	}
}

// clusterSlots is what the nodes of a cluster say of themselves.
func (w *world) clusterSlots(context.Context) (all []redis.ClusterSlot, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := 0; first < slots; {
		last := first
		for last+1 < slots && w.slots.owner[last+1] == w.slots.owner[first] {
			last++
		}
		all = append(all, redis.ClusterSlot{Start: first, End: last, Nodes: []redis.ClusterNode{{Addr: w.servers[w.slots.owner[first]].name}}})
		first = last + 1
	}
	return all, nil
}

// redirects returns the error of a node that has not the slot of a command. While the slot moves, its node
// redirects each command, and the new node runs those that ask for it.
func (s *server) redirects(args []string) error {
	at := 1
	switch strings.ToLower(args[0]) {
	case "evalsha", "eval":
		at = 3
	case "unlink", "zrem":
	default:
		return nil
	}
	asking := s.asking
	s.asking = false
	if !s.w.plan.Cluster || at == 3 && args[2] == "0" {
		return nil
	}
	m, slot := &s.w.slots, slotOf(window.HashTag(args[at]))
	to, moves := m.target[slot]
	switch {
	case m.owner[slot] == s.number && !moves, moves && to == s.number && asking:
		return nil
	case m.owner[slot] == s.number:
		m.sent[hash(0, args)] = true
		return fmt.Errorf("ASK %d %s", slot, s.w.servers[to].name)
	}
	m.sent[hash(0, args)] = true
	return fmt.Errorf("MOVED %d %s", slot, s.w.servers[m.owner[slot]].name)
}

// move moves slots to a node: their values at once, and then, after a time, the name of the node that has them.
func (w *world) move(f fault) {
	const around = slots / 32
	w.mu.Lock()
	defer w.mu.Unlock()
	middle := int(slotOf(w.plan.Keys[f.Size].tag()))
	var moved []uint16
	for slot := max(middle-around, 0); slot < min(middle+around, slots); slot++ {
		if _, moves := w.slots.target[uint16(slot)]; !moves && w.slots.owner[slot] != f.Who {
			moved = append(moved, uint16(slot))
		}
	}
	w.note("%d slots move", len(moved))
	to := w.servers[f.Who]
	to.tick()
	for key := range to.data.values { // what it had when it had the slot before
		if slices.Contains(moved, slotOf(window.HashTag(key))) {
			delete(to.data.values, key)
		}
	}
	for _, from := range w.servers {
		from.tick()
		for key, v := range from.data.values {
			slot := slotOf(window.HashTag(key))
			if from == to || w.slots.owner[slot] != from.number || !slices.Contains(moved, slot) {
				continue
			}
			delete(from.data.values, key)
			if v.expires > 0 {
				v.expires += to.data.clock/1000 - from.data.clock/1000
			}
			to.data.values[key] = v
		}
	}
	for _, k := range w.keys {
		if slices.Contains(moved, slotOf(k.tag())) {
			k.owners = append(k.owners, owner{w.now(), to})
		}
	}
	for _, slot := range moved {
		w.slots.target[slot] = f.Who
	}
	w.mu.Unlock()
	w.sleepUntil(f.At + f.For)
	w.mu.Lock()
	for _, slot := range moved {
		delete(w.slots.target, slot)
		w.slots.owner[slot] = f.Who
	}
}

// serverOf returns the server that has the values of a key.
func (w *world) serverOf(k *key) *server { return k.owners[len(k.owners)-1].server }

// historyOf returns the server of a key with the clocks and losses that were those of the key: if its slot has
// moved, those of one server after the other.
func (w *world) historyOf(k *key) *server {
	if len(k.owners) == 1 {
		return k.owners[0].server
	}
	all := *w.serverOf(k)
	all.clocks, all.losses = nil, nil
	for i, o := range k.owners {
		until := w.plan.Length + quiet
		if i+1 < len(k.owners) {
			until = k.owners[i+1].since
		}
		first := clockAt{since: o.since}
		for _, c := range o.server.clocks {
			if c.since <= o.since {
				first.offset = c.offset
			}
		}
		all.clocks = append(all.clocks, first)
		for _, c := range o.server.clocks {
			if c.since > o.since && c.since < until {
				all.clocks = append(all.clocks, c)
			}
		}
		for _, l := range o.server.losses {
			if l.at < o.since || l.at >= until {
				continue
			}
			if l.from < o.since {
				l.from = 0 // the replica has not got the key
			}
			all.losses = append(all.losses, l)
		}
	}
	return &all
}
