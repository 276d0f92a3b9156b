package simulate

import (
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/core/coretest"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// A key is a keySpec in a run. The world's mu guards it.
type key struct {
	*keySpec
	name   string
	redis  string // the name of its log; empty: not known yet
	check  window.Check
	open   int // calls that are under way
	resets []reset
	owed   uint64 // of a budget: what streams may cost that the store has not admitted
	most   uint64 // and: the highest sum of what was spent and reserved
	owners []owner
}

// A reset may have removed a log between two moments. If it failed, it may have removed nothing.
type reset struct {
	begun, at time.Duration
	failed    bool
}

func newKey(spec *keySpec) *key { return &key{keySpec: spec, name: fmt.Sprintf("key-%d", spec.Number)} }

// scopeName returns the name of the scope of a server.
func scopeName(server int) string {
	if server == 0 {
		return rules.RegionScope
	}
	return fmt.Sprintf("scope-%d", server)
}

// scopes returns the number of stores.
func (p *plan) scopes() int {
	if p.Cluster {
		return 1
	}
	return p.Servers
}

const (
	domain     = "edge"
	onceDomain = "once" // idempotency keys need a domain of their own
	onceEntry  = "attempt"
)

// newRules returns the rules of a plan: one for each key.
func newRules(p *plan, m *mutants) *rules.Rules {
	tiers, err := tier.NewDirectory(append([]string{unknownTier}, tierNames...), unknownTier)
	if err != nil {
		panic(err)
	}
	rs := rules.NewRules(rules.Identity{Secrets: coretest.Secrets, Tiers: tiers, Elsewhere: true})
	var scopes []string
	for i := range p.scopes() {
		scopes = append(scopes, scopeName(i))
	}
	rs.SetScopes(scopes)
	rs.SetOnStoreError(rules.StoreErrorLocal)
	for i := range p.Keys {
		k := &p.Keys[i]
		r := rules.Rule{
			Domain: domain, Name: fmt.Sprintf("key-%d", i), Path: []descriptors.Node{coretest.Any(fmt.Sprintf("key-%d", i))},
			Terms: rules.Terms{Limits: []rules.Limit{{Limit: k.Limit, Lease: k.Lease}}},
		}
		if k.Server > 0 && !p.Cluster {
			r.Storage.Scope = scopeName(k.Server)
		}
		if k.Hold > 0 {
			r.Terms.Limits[0].Budget = &rules.Budget{Budget: window.Budget{Hold: k.Hold}, Reserve: k.Costs, Max: k.Costs}
		}
		r.Charge.Always = k.Always
		if k.Tiers {
			r.ByTier = tiersOf(k, m.apart)
			r.Terms.Limits[0].Hits = unknownHits
		}
		if k.Limit.Policy == window.Calendar {
			days, err := calendar.New(calendar.Spec{Unit: "day"})
			if err != nil {
				panic(err)
			}
			r.Terms.Limits[0].Calendar = days
		}
		if k.Once {
			r.Domain = onceDomain
			r.Charge.Once = rules.ChargeOnce{Entry: onceEntry, For: total, Retries: rules.DefaultOnceRetries}
		}
		if err := rs.Add(r); err != nil {
			panic(err)
		}
	}
	return rs
}

// learn notes the log of a key from a check of it.
func (k *key) learn(c *window.Check) {
	if k.redis == "" && (!k.Tiers || c.Limit.Hits > unknownHits) {
		k.check = *c
		k.redis = redisstore.KeyName("", c.Log())
	}
}

// used returns what counts in the log of the key now.
func (s *server) used(k *key) uint64 {
	s.tick()
	v, _ := s.data.get(k.redis)
	return k.usedIn(v.text, s.data.clock)
}

func (k *key) usedIn(log string, clock int64) uint64 {
	var st packed.State
	c := k.check
	c.Stream, c.Budget = 0, nil
	st.Look([]byte(log), clock, &c)
	return st.View().Used()
}

// reserved returns what streams have reserved of a budget. What has expired is spent, and counts too.
func (s *server) reserved(k *key) (sum uint64) {
	contents, err := packed.Decode([]byte(s.data.values[k.redis+":r"].text))
	if err != nil {
		return 0
	}
	for _, h := range contents.Holds {
		sum += h.Cost
	}
	return sum
}

// spend checks a budget after a script. What was spent and reserved is not above the limit, but for what
// streams have cost that were admitted without the store.
func (s *server) spend() {
	for _, k := range s.w.keys {
		if k.Hold == 0 || s.w.serverOf(k) != s || k.redis == "" || len(s.w.losses(s)) > 0 {
			continue
		}
		if sum := s.used(k) + s.reserved(k); sum > k.most {
			if k.most = sum; sum > k.Limit.Hits+k.owed {
				s.w.breaks(promiseBudget, "%v: %d of %s are spent or reserved, with a limit of %d and %d admitted without the store", s.w.now(), sum, k.name, k.Limit.Hits, k.owed)
			}
		}
	}
}

// losses returns what a server has lost, or all servers of a cluster: what is known of a stream is on another
// one there.
func (w *world) losses(s *server) (all []loss) {
	for _, other := range w.servers {
		if other == s || w.plan.Cluster {
			all = append(all, other.losses...)
		}
	}
	return all
}

// watch returns the logs that a script may change without a call that is under way.
func (s *server) watch(names []string) (before map[*key]string) {
	for _, k := range s.w.keys {
		if s.w.serverOf(k) != s || k.redis == "" || k.open > 0 || k.Hold > 0 { // a budget is settled later, if need be
			continue
		}
		for _, name := range names {
			if name == k.redis {
				if before == nil {
					before = make(map[*key]string)
				}
				before[k] = s.data.values[name].text
			}
		}
	}
	return before
}

// setBack is how much two faults set a clock back at most.
const setBack = 4 * time.Second

// seemsInTime reports whether a call that has waited in a frozen server may be in time by its clock: it was set back,
// or the slot has come from a server whose clock is ahead, by which the instance has named the deadline.
func (k *key) seemsInTime(s *server, now time.Duration) bool {
	for i, o := range k.owners[1:] {
		if o.since >= now-setBack && k.owners[i].server.offsetAt(now) > o.server.offsetAt(now) {
			return true
		}
	}
	return s.clockSetBack(now-setBack, now)
}

// changed checks the logs of watch after the script.
func (w *world) changed(s *server, from *instance, before map[*key]string) {
	for k, log := range before {
		was, is := k.usedIn(log, s.data.clock), k.usedIn(s.data.values[k.redis].text, s.data.clock)
		if is > was {
			w.note("%s: %s has charged %s without a call: %d instead of %d", s.name, from.name, k.name, is, was)
			if k.seemsInTime(s, w.now()) {
				continue
			}
			w.breaks(promiseLate, "%v: %s charges %d for %s of %s, and no call of it is under way", w.now(), s.name, is-was, k.name, from.name)
		}
	}
}
