package stats

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Prefixes of the names of envoyproxy/ratelimit.
const (
	prefixRule    = "ratelimit.service.rate_limit."
	prefixService = "ratelimit.service."
	prefixServer  = "ratelimit_server."
	prefixProcess = "ratelimit."
)

// Options of [New].
type Options struct {
	// MaxNames bounds the names with values of requests. With zero all values share one name.
	MaxNames int
	// Memory counts over_limit_with_local_cache, and what the process looked up in its memory
	// of denials.
	Memory bool
	// Mapping makes names for Prometheus, of these metrics alone. Nil: Prometheus does not scrape.
	Mapping *Mapping
	// Times keeps the times of calls for a Sender.
	Times bool
}

// Stats holds the metrics. It is safe for concurrent use, and implements decide.HitMeters. The
// methods of a nil Stats that the daemon calls for each call or load do nothing.
type Stats struct {
	options Options
	// free is how many more names with values of requests may begin.
	free atomic.Int64

	service serviceCounters
	memory  memoryCounters
	domains unknownDomains
	methods map[string]*Method // immutable after New

	scrape sync.Mutex // guards logged, and how Prometheus sees counters
	logged bool       // a conflict of two kinds has been logged

	// mu guards the fields below. No call takes it.
	mu         sync.RWMutex
	generation uint64
	rules      map[string]*meter // by their layout
	named      []*counter
	gauges     []*counter // numbers that go up and down
}

type serviceCounters struct{ loaded, refused, shadowed, storeErrors, serviceErrors *counter }

// memoryCounters count denials that the process found, or did not find, in its memory.
type memoryCounters struct{ hits, misses atomic.Uint64 }

type unknownDomains struct {
	mu     sync.Mutex
	byName map[string]*counter
}

// maxDomains bounds the counters of unknown domains, whose names clients can make up.
const maxDomains = 100

// New returns metrics without a value.
func New(o Options) *Stats {
	s := &Stats{options: o, rules: make(map[string]*meter), domains: unknownDomains{byName: make(map[string]*counter)}, methods: make(map[string]*Method)}
	s.free.Store(int64(o.MaxNames))
	for name, c := range map[string]**counter{
		"config_load_success":                  &s.service.loaded,
		"config_load_error":                    &s.service.refused,
		"global_shadow_mode":                   &s.service.shadowed,
		"call.should_rate_limit.redis_error":   &s.service.storeErrors,
		"call.should_rate_limit.service_error": &s.service.serviceErrors,
	} {
		*c = s.counter(prefixService + name)
	}
	for _, method := range []string{ShouldRateLimit, HealthCheck} {
		s.methods[method] = s.newMethod(method)
	}
	if o.Memory {
		s.Gauge("localcache.hitCount", s.memory.hits.Load)
		s.Gauge("localcache.missCount", s.memory.misses.Load)
		s.Gauge("localcache.lookupCount", func() uint64 { return s.memory.hits.Load() + s.memory.misses.Load() })
	}
	return s
}

// Remembers returns Options.Memory.
func (s *Stats) Remembers() bool { return s.options.Memory }

// A counter counts under one name. It is shown once it is not zero.
type counter struct {
	name  string
	value atomic.Uint64
	from  func() uint64 // reads the value; nil: value has it

	// sent is the value that the statsd server has received. Only the Sender uses it.
	sent uint64
	// mapped is how Prometheus sees the counter, once it is found. Nil: not at all. Only gather uses
	// both, under its lock.
	mapped *mapped
	found  bool
}

func (c *counter) read() uint64 {
	if c.from != nil {
		return c.from()
	}
	return c.value.Load()
}

// counter adds a counter that stays.
func (s *Stats) counter(name string) *counter {
	c := &counter{name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named = append(s.named, c)
	return c
}

// Counter adds a counter that is read when it is sent or shown. Its name begins with
// "ratelimit.".
func (s *Stats) Counter(name string, read func() uint64) {
	c := s.counter(prefixProcess + name)
	c.from = read
}

// Gauge adds a gauge. Its name begins with "ratelimit.".
func (s *Stats) Gauge(name string, read func() uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gauges = append(s.gauges, &counter{name: prefixProcess + name, from: read})
}

// The counters of one rule.
const (
	totalHits = iota
	overLimit
	nearLimit
	overLimitWithLocalCache
	withinLimit
	shadowMode
	counters
)

var suffixes = [counters]string{
	totalHits:               ".total_hits",
	overLimit:               ".over_limit",
	nearLimit:               ".near_limit",
	overLimitWithLocalCache: ".over_limit_with_local_cache",
	withinLimit:             ".within_limit",
	shadowMode:              ".shadow_mode",
}

type hits [counters]counter

func newHits(fullKey string) *hits {
	h := new(hits)
	name := prefixRule + clean(fullKey)
	for i := range h {
		h[i].name = name + suffixes[i]
	}
	return h
}

func (h *hits) add(n decide.Hits) {
	for _, part := range [...]struct {
		counter int
		hits    uint64
	}{
		{totalHits, n.Total}, {withinLimit, n.Within}, {nearLimit, n.Near}, {overLimit, n.Over}, {shadowMode, n.Shadowed},
	} {
		if part.hits > 0 {
			h[part.counter].value.Add(part.hits)
		}
	}
	if n.Remembered && n.Over > 0 {
		h[overLimitWithLocalCache].value.Add(n.Over)
	}
}

// Rule implements decide.HitMeters. A rule of the former generation with the same path and flags
// keeps its counters.
func (s *Stats) Rule(r *rules.Rule) decide.HitMeter { return s.meter(ruleLayout(r)) }

// Overrides implements decide.HitMeters.
func (s *Stats) Overrides(domain string, hidden func(key string) bool) decide.HitMeter {
	return s.meter(layout{domain: domain, entries: hidden})
}

// meter returns the meter of a layout, and marks it as one of the next generation.
func (s *Stats) meter(l layout) *meter {
	id := l.id()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.rules[id]
	if m == nil {
		m = &meter{stats: s, layout: l}
		if !l.open() {
			m.plain = newHits(l.fullKey())
		}
		s.rules[id] = m
	}
	m.generation = s.generation
	return m
}

// Loaded counts a generation of rules that became active. It ends the counters of rules without
// a call of Rule since the last Loaded.
func (s *Stats) Loaded() {
	if s == nil {
		return
	}
	s.service.loaded.value.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.rules {
		if m.generation != s.generation {
			delete(s.rules, id)
			m.end()
		}
	}
	s.generation++
}

// Refused counts a broken generation of rules.
func (s *Stats) Refused() {
	if s != nil {
		s.service.refused.value.Add(1)
	}
}

// StoreFailed implements decide.HitMeters.
func (s *Stats) StoreFailed() { s.service.storeErrors.value.Add(1) }

// Shadowed implements decide.HitMeters.
func (s *Stats) Shadowed() { s.service.shadowed.value.Add(1) }

// UnknownDomain implements decide.HitMeters.
func (s *Stats) UnknownDomain(domain string, descriptors int) {
	d := &s.domains
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byName[domain] == nil && (len(domain) > maxValue || len(d.byName) >= maxDomains) {
		domain = other
	}
	c := d.byName[domain]
	if c == nil {
		domain = strings.Clone(domain) // the request keeps its bytes for the next one
		c = &counter{name: prefixRule + clean(domain) + ".domain_not_found"}
		d.byName[domain] = c
	}
	c.value.Add(uint64(descriptors))
}

type meter struct {
	stats  *Stats
	layout layout
	plain  *hits // of a rule whose name has no values of requests; nil otherwise

	generation uint64 // guarded by stats.mu

	// mu guards the fields below.
	mu    sync.RWMutex
	names map[string]*hits // by FullKey, before it is cleaned
	other *hits
	ended bool
}

// Count implements decide.HitMeter.
func (m *meter) Count(entries descriptors.Descriptor, n decide.Hits) {
	if s := m.stats; s.options.Memory {
		switch {
		case n.Remembered:
			s.memory.hits.Add(1)
		case n.Decided:
			s.memory.misses.Add(1)
		}
	} else {
		n.Remembered = false
	}
	if m.plain != nil {
		m.plain.add(n)
		return
	}
	if n.Total == 0 && n.Within == 0 && n.Over == 0 {
		return
	}
	var room [maxName]byte
	if name, ok := m.layout.appendKey(room[:0], entries); ok {
		m.mu.RLock()
		h := m.names[string(name)]
		m.mu.RUnlock()
		if h == nil && m.stats.free.Load() > 0 {
			h = m.begin(string(name))
		}
		if h != nil {
			h.add(n)
			return
		}
	}
	m.others().add(n)
}

// begin begins the counters of a name. It returns nil if there are too many names.
func (m *meter) begin(name string) *hits {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.names[name]; h != nil {
		return h // another request was first
	}
	if m.ended {
		return nil
	}
	if m.stats.free.Add(-1) < 0 {
		m.stats.free.Add(1)
		return nil
	}
	if m.names == nil {
		m.names = make(map[string]*hits)
	}
	h := newHits(name)
	m.names[name] = h
	return h
}

// others returns the counters of values without a name of their own.
func (m *meter) others() *hits {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.other == nil {
		m.other = newHits(m.layout.fullKey())
	}
	return m.other
}

// end gives the names of a rule that is gone back.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.stats.free.Add(int64(len(m.names)))
	m.names = nil
}

// counters returns every counter that is not zero. Two of them may have the same name.
func (s *Stats) counters() (all []*counter) {
	add := func(c *counter) {
		if c.read() > 0 {
			all = append(all, c)
		}
	}
	addHits := func(h *hits) {
		if h == nil {
			return
		}
		for i := range h {
			add(&h[i])
		}
	}
	s.domains.mu.Lock()
	for _, c := range s.domains.byName {
		add(c)
	}
	s.domains.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.named {
		add(c)
	}
	for _, m := range s.rules {
		addHits(m.plain)
		m.mu.RLock()
		for _, h := range m.names {
			addHits(h)
		}
		addHits(m.other)
		m.mu.RUnlock()
	}
	return all
}
