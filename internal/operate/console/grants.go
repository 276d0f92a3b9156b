package console

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/core/grant"
)

// grantsOf returns the grants of the subject of a page.
func (c *Console) grantsOf(p *subjectPage) (all []*grant.Grant) {
	for _, g := range c.opts.Insight.Grants() {
		if g.Subject != "" && g.Subject == p.Usage.Subject || g.Address != "" && g.Address == p.Query.Address || g.Digest != "" && g.Digest == p.Query.Digest {
			all = append(all, g)
		}
	}
	return all
}

// grant makes a grant for the subject of a form, or revokes one.
func (c *Console) grant(w http.ResponseWriter, r *http.Request) {
	q, ok := c.formQuery(w, r)
	if !ok {
		return
	}
	get, by := r.PostForm.Get, c.opts.Access.Caller(r).By()
	var err error
	switch id, rule := get("revoke"), get("rule"); {
	case id != "":
		_, err = c.opts.Insight.Revoke(r.Context(), id, by)
	case c.ruleName(rule) == "":
		err = errNoRule
	default:
		text := strings.TrimPrefix(strings.TrimSpace(get("amount")), "×")
		amount := grant.Amount{Limit: text}
		if factor, bad := strconv.ParseFloat(text, 64); bad == nil {
			amount = grant.Amount{Factor: factor}
		}
		_, err = c.opts.Insight.Grant(r.Context(), q.Grant(rule, amount, strings.TrimSpace(get("until")), strings.TrimSpace(get("reason")), by))
	}
	if err != nil {
		c.refuse(w, r, q, err)
		return
	}
	seeOther(w, subjectAddress(q))
}
