package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
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
		return f, errors.New("address: write an address or a network, such as 192.0.2.0/24")
	}
	f.Since, err = since(query, now)
	return f, err
}

// since returns the time of the parameter since, or the zero time if there is none.
func since(query url.Values, now time.Time) (time.Time, error) {
	text := query.Get("since")
	if !query.Has("since") {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("since=%s: write how long ago, such as 5m, or a time such as 2026-01-31T09:30:00Z", repeated(text))
	}
	return t, nil
}

func (a *api) denials(w http.ResponseWriter, _ *http.Request, query url.Values) {
	f, err := filter(query, time.Now())
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err)
		return
	}
	answer(w, a.Insight.Denials(f))
}
