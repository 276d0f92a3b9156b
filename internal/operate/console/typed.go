package console

import (
	"context"
	"strings"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// holds reports whether text is the API key of a known subject. It asks by the digest.
func (c *Console) holds(ctx context.Context, text string) bool {
	if c.opts.Tiers == nil {
		return false
	}
	k := tier.Key{Digest: c.opts.Secrets.Digest(text)}
	i := c.opts.Tiers.Look(k)
	if i.Subject == nil {
		i, _ = c.opts.Tiers.Lookup(ctx, k) // without an answer there is no subject
	}
	return i.Subject != nil
}

// party returns the query of the party that typed text names. Text that is not recognized is
// taken for an API key, so only its digest remains.
func (c *Console) party(ctx context.Context, text string) insight.Query {
	text = strings.TrimSpace(text)
	q := insight.Query{Subject: text}
	if typed, err := tier.ReadDigest(text); err == nil {
		q = insight.Query{Digest: typed} // an unknown API key may look like a digest
	} else if a := insight.Address(text); a != "" {
		q = insight.Query{Address: a}
	}
	if c.recognizes(ctx, q, text) {
		return q
	}
	return insight.Query{Digest: c.opts.Secrets.Digest(text)}
}

// recognizes reports whether a page may repeat the text of a query with an id or a digest: it is
// not the API key of a known subject, and the tiers have it, it was denied, or it has a log. Text of
// clients and sources reaches the log and the store only after its digest is found to be unknown.
func (c *Console) recognizes(ctx context.Context, q insight.Query, text string) bool {
	if q.Subject != "" && tier.ValidID(q.Subject) != nil || c.holds(ctx, text) {
		return false
	}
	u, err := c.opts.Insight.Usage(ctx, q)
	return err == nil && u.Recognized
}

// denied returns the last denial that a filter finds, or none.
func (c *Console) denied(f insight.Filter) (d insight.Denial) {
	f.Limit = 1
	for _, d = range c.opts.Insight.Denials(f).Denials {
		break
	}
	return d
}
