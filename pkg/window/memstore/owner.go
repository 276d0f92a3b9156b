package memstore

import (
	"fmt"
	"hash/maphash"
	"math"
)

// # The part of a rule
//
// An attacker can fill a shard with logs that are limiting at once, and none of them may be
// dropped. So each rule ([Options.Owner]) has a bound that depends on the free memory: its
// logs take at most seven times as much. One rule alone fills seven eighths of a shard, and
// others can still make logs. A rule at its bound makes a new log only instead of one of its
// own that may go.

const (
	// owners is how many counts a shard has. Rules whose hashes are equal share a count.
	owners = 256
	// freePart is how many times the free memory the logs of a rule may take.
	freePart = 7
	// exchanges is how often a call looks for a log of its rule that may go.
	exchanges = 2
)

// owned counts the logs of each rule in a shard.
type owned struct {
	of     func(key string) string
	seed   maphash.Seed
	bytes  [owners]int64
	hand   int  // goes round over the buckets to find logs of one rule
	newest *log // the last that replaced another log of its rule, or nil
}

// owner returns the index of the rule of a key.
func (o *owned) owner(key string) uint8 { return uint8(maphash.String(o.seed, o.of(key))) }

// count counts the bytes that a log takes more. The logs of streams have no rule.
func (sh *shard) count(l *log, n int64) {
	if sh.owned != nil && !l.ofStream() {
		sh.owned.bytes[sh.owned.owner(l.key)] += n
	}
}

// over reports whether a rule that needs n bytes more would have more than its part.
func (sh *shard) over(owner uint8, n int64) bool {
	return n > 0 && sh.limit < math.MaxInt64 && sh.owned.bytes[owner]+n > freePart*max(sh.limit-sh.bytes, 0)
}

// exchange drops logs of the rule of a key, which is over its part, until they have taken as much
// as n. It returns an error that wraps ErrFull and names the rule if it finds too few. It does not
// drop the logs of the group.
func (sh *shard) exchange(key string, n, now int64, group []checkState) error {
	owner := sh.owned.owner(key)
	var freed int64
	for range exchanges {
		c := sh.leastUsed(owner, now, group)
		if !sh.over(owner, n) {
			return nil // expired logs are gone
		}
		if c.log == nil {
			continue
		}
		if c.used > 0 {
			sh.evicted++
		}
		freed += c.log.size()
		sh.remove(c.log)
		if freed >= n && sh.within(sh.limit, n) {
			return nil
		}
	}
	sh.refused++
	return fmt.Errorf("the logs of the rule %s have taken their part of the store, and all are limiting now: %w", sh.owned.of(key), ErrFull)
}

// leastUsed returns the log of a rule that has used the smallest fraction of its limit: of those
// that the second hand finds, of the candidates and of the newest one. It drops expired logs.
func (sh *shard) leastUsed(owner uint8, now int64, group []checkState) (best candidate) {
	consider := func(c candidate, s state) {
		if s != limiting && !c.log.ofStream() && !pinned(group, c.log) && sh.owned.owner(c.log.key) == owner && (best.log == nil || c.before(&best)) {
			best = c
		}
	}
	for effort, visited := step, 0; effort > 0 && visited < sh.buckets; visited++ {
		if sh.owned.hand >= sh.buckets {
			sh.owned.hand = 0
		}
		effort -= bucketEffort
		for link := sh.bucket(sh.owned.hand); *link != nil; {
			l := *link
			effort -= logEffort
			var c candidate
			s := c.judge(l, now)
			if s == expired && !pinned(group, l) {
				sh.drop(link)
				continue
			}
			consider(c, s)
			link = &l.next
		}
		sh.owned.hand++
	}
	known := sh.candidates // judging may not change them
	for i := range known.n {
		var c candidate
		consider(c, c.judge(known.list[i].log, now))
	}
	if l := sh.owned.newest; l != nil {
		var c candidate
		consider(c, c.judge(l, now))
	}
	return best
}
