package console

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

// topPage is the content of the page of tops.
type topPage struct {
	insight.Top
	Most float64
}

// topShown is the length of the list, and topAsked that of the list of each instance, if there are
// several.
const topShown, topAsked = 50, 1000

func (c *Console) top(w http.ResponseWriter, r *http.Request) {
	q := insight.TopQuery{By: "subject", Order: "denied", Minutes: 5, Limit: topShown}
	if v := r.URL.Query().Get("by"); slices.Contains(insight.TopBys[:], v) {
		q.By = v
	}
	if v := r.URL.Query().Get("order"); slices.Contains(insight.TopOrders[:], v) {
		q.Order = v
	}
	if v, err := strconv.Atoi(r.URL.Query().Get("minutes")); err == nil && slices.Contains(insight.TopMinutes[:], v) {
		q.Minutes = v
	}
	if c.opts.Peers != nil {
		q.Limit = topAsked
	}
	path := address("/v1/top", "by", q.By, "order", q.Order, "minutes", strconv.Itoa(q.Minutes), "limit", strconv.Itoa(q.Limit))
	p := topPage{Top: peers.Ask(r.Context(), c.opts.Peers, path, c.opts.Insight.Top(q), func(all []merge.Answer[insight.Top]) insight.Top {
		return merge.Tops(all, q.Limit, topShown)
	})}
	p.By, p.Order, p.Minutes = q.By, q.Order, q.Minutes
	for _, e := range p.Entries {
		p.Most = max(p.Most, float64(e.Count))
	}
	c.show(w, r, http.StatusOK, view{Page: "top", Title: "Top", Refresh: 5, Instances: p.Instances, Data: p})
}

// A choice is one of several links.
type choice struct {
	Text, Address string
	Chosen        bool
}

func (p topPage) address(by, order string, minutes int) string {
	return address("/top", "by", by, "order", order, "minutes", strconv.Itoa(minutes))
}

// Bys, Orders and Times are the links to the other lists.
func (p topPage) Bys() (all []choice) {
	names := []string{"Customers", "Rules", "Routes", "Addresses"}
	for i, by := range insight.TopBys {
		all = append(all, choice{names[i], p.address(by, p.Order, p.Minutes), by == p.By})
	}
	return all
}

func (p topPage) Orders() (all []choice) {
	names := []string{"Most denied", "Nearest to a limit", "Observed only"}
	for i, order := range insight.TopOrders {
		all = append(all, choice{names[i], p.address(p.By, order, p.Minutes), order == p.Order})
	}
	return all
}

func (p topPage) Times() (all []choice) {
	for _, m := range insight.TopMinutes {
		text := strconv.Itoa(m) + " min"
		if m == 60 {
			text = "1 h"
		}
		all = append(all, choice{text, p.address(p.By, p.Order, m), m == p.Minutes})
	}
	return all
}

// Link returns the address of the page about an entry. It is empty if there is none.
func (p topPage) Link(e insight.TopEntry) string {
	switch p.By {
	case "subject":
		switch {
		case e.Digest != "":
			return address("/subject", "digest", e.Digest)
		case e.Address != "": // a caller without a known key
			return address("/subject", "address", e.Address)
		}
		return address("/subject", "id", e.Name)
	case "rule":
		return address("/rules", "rule", e.Name)
	case "route":
		return address("/denials", "route", e.Name)
	case "address":
		return address("/subject", "address", e.Name)
	}
	return ""
}

// Column is the head of the column of counts.
func (p topPage) Column() string {
	switch p.Order {
	case "near":
		return "Requests near a limit"
	case "shadow":
		return "Denials, observed only"
	}
	return "Denials"
}
