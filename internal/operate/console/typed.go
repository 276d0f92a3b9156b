package console

import (
	"context"
	"strings"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// typed returns the query for typed text. Text that is not recognized is taken for an API key, so only
// its digest remains.
func (c *Console) typed(ctx context.Context, text string) insight.Query {
	text = strings.TrimSpace(text)
	q := insight.Query{Subject: text}
	if typed, err := tier.ReadDigest(text); err == nil {
		q = insight.Query{Digest: typed} // an unknown API key may look like a digest
	} else if a := insight.Address(text); a != "" {
		q = insight.Query{Address: a}
	}
	if _, ok := c.opts.Insight.Find(ctx, q, text); ok {
		return q
	}
	return insight.Query{Digest: c.opts.Secrets.Digest(text)}
}

// denied returns the last denial that a filter finds, or none.
func (c *Console) denied(f insight.Filter) (d insight.Denial) {
	f.Limit = 1
	for _, d = range c.opts.Insight.Denials(f).Denials {
		break
	}
	return d
}
