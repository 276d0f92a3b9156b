package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
)

// maxDenials bounds one answer.
const maxDenials = 100_000

// filter reads which denials a request asks for. A relative since counts back from now.
func filter(query url.Values, now time.Time) (f insight.Filter, err error) {
	f = insight.Filter{Rule: query.Get("rule"), Subject: query.Get("subject"), Route: query.Get("route"), Address: query.Get("address"), Request: query.Get("request")}
	if f.Shadow, err = choice(query, "shadow", shadows, ""); err != nil {
		return f, err
	}
	if f.Limit, err = number(query, "limit", maxDenials, 0); err != nil {
		return f, err
	}
	if f.Address != "" && insight.Address(f.Address) == "" {
		return f, bad("address: write an address or a network, such as 192.0.2.0/24")
	}
	f.Since, err = instant(query, "since", now, time.Time{})
	return f, err
}

// instant returns the time of a parameter, or otherwise if there is none.
func instant(query url.Values, name string, now, otherwise time.Time) (time.Time, error) {
	text := query.Get(name)
	if !query.Has(name) {
		return otherwise, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, bad("%s=%s: write how long ago, such as 5m, or a time such as 2026-01-31T09:30:00Z", name, repeated(text))
	}
	return t, nil
}

func (a *api) denials(r *http.Request, query url.Values) (any, error) {
	f, err := filter(query, time.Now())
	if err != nil {
		return nil, err
	}
	return ofAll(a, r, query, a.Insight.Denials(f), func(all []merge.Answer[insight.Denials]) insight.Denials {
		return merge.Denials(all, f.Limit)
	})
}

func (a *api) history(r *http.Request, query url.Values) (any, error) {
	now := time.Now()
	q := history.Query{Rule: query.Get("rule"), Subject: query.Get("subject")}
	var errs [3]error
	q.From, errs[0] = instant(query, "from", now, now.AddDate(0, 0, -7))
	q.To, errs[1] = instant(query, "to", now, now)
	if q.Rule != "" && q.Subject != "" {
		errs[2] = bad("name one of rule and subject, not both")
	}
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	return a.History(r.Context(), q)
}
