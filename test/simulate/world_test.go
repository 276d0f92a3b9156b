package simulate

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// A world is one run of a plan: servers, instances and callers on one virtual clock. It must be made
// and used inside a bubble of synctest.
type world struct {
	plan    *plan
	begun   time.Time
	host    *luaHost
	mutants mutants

	mu        sync.Mutex // guards all below, and the data of servers
	servers   []*server
	instances []*instance
	keys      []*key
	ops       []*op
	events    []event
	broken    []string // promises, with what breaks them
	decisions int
	starts    int // of instances, after the first ones
	started   []time.Duration
	slots     slotMap
	changes   []tierChange
	conns     map[*pipe]struct{}
	dials     int // and how many of them
	dialled   int // were made
	over      bool

	running sync.WaitGroup
}

// An event is something that is no call: a fault, or a change of a server's data that has no call.
type event struct {
	at   time.Duration
	text string
}

// counted is how long before a run its instances start. Then each knows how many there are.
const counted = 10 * time.Second

func newWorld(p *plan, m mutants) *world {
	begun := time.Now().Truncate(day).Add(day - p.Midnight)
	time.Sleep(time.Until(begun.Add(-counted)))
	w := &world{plan: p, begun: begun, host: newLuaHost(), mutants: m, conns: make(map[*pipe]struct{})}
	for i := range p.Servers {
		w.servers = append(w.servers, newServer(w, i))
	}
	for i := range p.Keys {
		w.keys = append(w.keys, newKey(&p.Keys[i]))
	}
	w.slots.begin(w)
	w.changes = []tierChange{{}}
	for i := range p.Instances {
		time.Sleep(time.Microsecond) // no two things happen at once
		w.instances = append(w.instances, newInstance(w, i, 0))
	}
	time.Sleep(time.Until(begun))
	return w
}

// now is the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.begun) }

// note records an event. The caller holds mu.
func (w *world) note(format string, args ...any) {
	w.events = append(w.events, event{w.now(), fmt.Sprintf(format, args...)})
}

// breaks records that a promise does not hold. The caller holds mu.
func (w *world) breaks(promise, format string, args ...any) {
	const most = 5 // the first are enough
	if len(w.broken) < most {
		w.broken = append(w.broken, promise+"\n  "+fmt.Sprintf(format, args...))
	}
}

// number returns a number that follows from the seed and from what it is for.
func (w *world) number(parts ...any) uint64 { return hash(w.plan.Seed, parts...) }

func hash(seed uint64, parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, append([]any{seed}, parts...)...)
	return h.Sum64()
}

// rand returns a generator that follows from the seed and from what it is for.
func (w *world) rand(parts ...any) *rand.Rand { return rand.New(rand.NewPCG(w.number(parts...), 1)) }

// travel returns how long a message takes at this moment. It follows from the moment and not from
// earlier messages, so that a plan without one fault is otherwise the same. Most take 60 to 260 µs,
// one in 50 a few milliseconds: messages on two connections overtake each other.
func (w *world) travel(parts ...any) time.Duration {
	n := w.number(append(parts, int64(w.now()))...)
	d := 60*time.Microsecond + time.Duration(n%200_000)
	if n>>32%50 == 0 {
		d += time.Duration(n >> 40 % 6_000_000)
	}
	return d
}
