package extauthz

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/edge/answer"
)

// failures limits the unknown API keys of each address, so that no client can guess keys. A key that
// comes again is no guess: it is not counted again, and it is looked up, so that no client locks out
// the customers behind its address. It is safe for concurrent use.
type failures struct {
	most int              // in a minute; zero: no limit
	now  func() time.Time // the clock

	any       atomic.Bool // whether an address has failed
	mu        sync.Mutex
	addresses map[netip.Prefix]*failed
	seed      maphash.Seed
	seen      [2]map[uint32]struct{} // hashes of keys that came: lately, and before
	since     time.Time              // of the first map
}

// The keys that are seen count for one to two times seenFor, if they are not more than maxSeen.
const (
	seenFor = 2 * time.Minute
	maxSeen = 1 << 16
)

type failed struct {
	until time.Time
	count int
}

// maxAddresses bounds the addresses that are kept. One more replaces any other.
const maxAddresses = 1 << 16

// wait returns how long an address must wait before its next unknown key, or 0.
func (f *failures) wait(from netip.Prefix) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.addresses[from]; a != nil && a.count >= f.most {
		return max(0, a.until.Sub(f.now()))
	}
	return 0
}

// again reports whether a key has come before, and notes it.
func (f *failures) again(fingerprint string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.note(fingerprint)
}

func (f *failures) note(fingerprint string) bool {
	if now := f.now(); f.seen[0] == nil || len(f.seen[0]) >= maxSeen || now.Sub(f.since) > seenFor {
		f.seen[0], f.seen[1], f.since = make(map[uint32]struct{}), f.seen[0], now
	}
	hash := uint32(maphash.String(f.seed, fingerprint))
	_, lately := f.seen[0][hash]
	_, before := f.seen[1][hash]
	f.seen[0][hash] = struct{}{}
	return lately || before
}

func (f *failures) add(from netip.Prefix, fingerprint string) {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.note(fingerprint) {
		return
	}
	a := f.addresses[from]
	if a == nil {
		for other := range f.addresses {
			if len(f.addresses) < maxAddresses {
				break
			}
			delete(f.addresses, other)
		}
		a = new(failed)
		f.addresses[from] = a
		f.any.Store(true)
	}
	if now.After(a.until) {
		*a = failed{until: now.Add(time.Minute)}
	}
	a.count++
}

// guesses returns how long the client must wait before its next unknown key, or 0.
func (s *Service) guesses(c *call) time.Duration {
	if !s.failures.any.Load() {
		return 0
	}
	return s.failures.wait(s.masked(c))
}

// fail counts an unknown key of the client. A client without an address has no limit.
func (s *Service) fail(c *call) {
	if from := s.masked(c); s.failures.most > 0 && from.IsValid() {
		s.failures.add(from, c.keys.fingerprint)
	}
}

const guessed = `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many unknown API keys came from this address.","reason":"limited"}`

// refuseGuess denies a request whose key is not known, of a client with too many unknown keys.
func (c *call) refuseGuess(wait time.Duration) {
	c.reply.fields = append(answer.AppendRetry(c.reply.fields, wait), answer.Header{Name: "content-type", Value: answer.ContentTypeProblem})
	c.reply.body = append(c.reply.body, guessed...)
	c.result = Limited
}
