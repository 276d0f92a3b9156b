package describe

import (
	"encoding/hex"
	"hash/maphash"

	"github.com/slidegate/slidegate/internal/tier"
)

// maxCached bounds the items of each half of a cache.
const maxCached = 1 << 15

// maxText bounds the paths that a cache keeps, in bytes.
const maxText = 512

// cache is a bounded map: when the young half is full, it becomes the old one, and the old one
// goes. What was used lately stays.
type cache[K comparable, V any] struct{ young, old map[K]V }

func (c *cache[K, V]) init() { c.young = make(map[K]V) }

func (c *cache[K, V]) put(k K, v V) {
	if len(c.young) >= maxCached {
		c.young, c.old = make(map[K]V, maxCached), c.young
	}
	c.young[k] = v
}

// digests returns the fingerprints of API keys. It keeps hashes of the keys with random seeds, not
// the keys.
type digests struct {
	cache[[2]uint64, string]
	seeds   [2]maphash.Seed
	secrets *tier.Secrets
}

func (g *digests) init(secrets *tier.Secrets) {
	g.cache.init()
	g.seeds, g.secrets = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, secrets
}

// fingerprint returns the digest of a value with a prefix. Behind keyPrefix, a value that is the
// beginning of a digest stays the beginning, so that reports name the key as rls does.
func (g *digests) fingerprint(prefix string, value []byte) string {
	k := [2]uint64{maphash.Bytes(g.seeds[0], value) + uint64(len(prefix)), maphash.Bytes(g.seeds[1], value)}
	if s, ok := g.young[k]; ok {
		return s
	}
	s, ok := g.old[k]
	if !ok {
		s = g.secrets.Fingerprint(prefix + string(value))
		if _, err := hex.DecodeString(string(value)); prefix == keyPrefix && err == nil && len(value) == len(tier.ShortDigest(s)) {
			s = string(value) + s[len(value):]
		}
	}
	g.put(k, s)
	return s
}
