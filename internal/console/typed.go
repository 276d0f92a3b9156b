package console

import (
	"context"
	"net/netip"
	"strings"

	"github.com/slidegate/slidegate/internal/clientaddr"
	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/tier"
)

// holds reports whether text is the API key of a known subject. It asks by the digest.
func (c *Console) holds(ctx context.Context, text string) bool {
	return c.known(ctx, tier.Key{Digest: c.opts.Secrets.Digest(text)}) != nil
}

// known returns the subject of a key or an id, or nil.
func (c *Console) known(ctx context.Context, k tier.Key) *tier.Subject {
	if c.opts.Tiers == nil {
		return nil
	}
	if i := c.opts.Tiers.Look(k); i.Subject != nil {
		return i.Subject
	}
	i, err := c.opts.Tiers.Lookup(ctx, k)
	if err != nil {
		return nil
	}
	return i.Subject
}

// used reports whether a party has a log that is not empty.
func (c *Console) used(ctx context.Context, q insight.Query) bool {
	u, err := c.opts.Insight.Usage(ctx, q)
	if err != nil {
		return false
	}
	for _, l := range u.Limits {
		if l.Used > 0 {
			return true
		}
	}
	return false
}

// party returns the query of the party that typed text names. Text that is not recognized is
// taken for an API key, so only its digest remains.
func (c *Console) party(ctx context.Context, text string) insight.Query {
	text = strings.TrimSpace(text)
	// Text of clients and sources reaches the log and the store only after this digest is
	// found to be unknown.
	digest := c.opts.Secrets.Digest(text)
	if c.known(ctx, tier.Key{Digest: digest}) != nil {
		return insight.Query{Digest: digest}
	}
	if typed, err := tier.ReadDigest(text); err == nil {
		if c.known(ctx, tier.Key{Digest: typed}) != nil || c.used(ctx, insight.Query{Digest: typed}) || c.denied(func(d insight.Denial) bool { return d.Digest == typed }) {
			return insight.Query{Digest: typed}
		}
		return insight.Query{Digest: digest} // an unknown API key may look like a digest
	}
	if a := clientAddress(text); a != "" {
		return insight.Query{Address: a}
	}
	if c.isSubject(ctx, text) {
		return insight.Query{Subject: text}
	}
	return insight.Query{Digest: digest}
}

// isSubject reports whether text is the id of a subject: a known one, one that was denied, or
// one with a log.
func (c *Console) isSubject(ctx context.Context, text string) bool {
	if tier.ValidID(text) != nil || c.holds(ctx, text) {
		return false
	}
	return c.known(ctx, tier.Key{ID: text}) != nil ||
		c.denied(func(d insight.Denial) bool { return d.Subject == text }) ||
		c.used(ctx, insight.Query{Subject: text})
}

// clientAddress returns the canonical form of an IP address or a masked one, or an empty text.
func clientAddress(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().String()
	}
	if a, ok := clientaddr.Parse(text); ok {
		return a.String()
	}
	return ""
}

// denied reports whether a recorded denial is of the kind.
func (c *Console) denied(is func(insight.Denial) bool) bool {
	for _, d := range c.opts.Insight.Denials(insight.Filter{Limit: maxSearched}).Denials {
		if is(d) {
			return true
		}
	}
	return false
}

// maxSearched bounds the denials that are searched for typed text.
const maxSearched = 10_000
