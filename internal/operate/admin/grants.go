package admin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/probelist"
)

// Grants are those that have not ended.
type Grants struct {
	Grants []*grant.Grant `json:"grants"` // the newest first
}

func (a *api) grants(*http.Request, url.Values) (any, error) {
	return Grants{list(a.Insight.Grants())}, nil
}

func (a *api) grant(r *http.Request, _ url.Values) (any, error) {
	var q insight.GrantRequest
	if err := readBody(r, &q, `{"subject": "acme", "rule": "per-key", "factor": 2, "until": "2h", "reason": "ticket 4711"}`); err != nil {
		return nil, err
	}
	q.Reason = strings.TrimSpace(q.Reason)
	q.By = a.Access.Caller(r).By()
	return a.Insight.Grant(r.Context(), q)
}

func (a *api) revoke(r *http.Request, _ url.Values) (any, error) {
	g, err := a.Insight.Revoke(r.Context(), r.PathValue("id"), a.Access.Caller(r).By())
	if errors.Is(err, insight.ErrNoGrant) {
		return nil, refuse(http.StatusNotFound, "%s", err)
	}
	return g, err
}

func (a *api) startProbe(r *http.Request, _ url.Values) (any, error) {
	var q probelist.Request
	if err := readBody(r, &q, `{"key": "a random text of its own", "seconds": 10}`); err != nil {
		return nil, err
	}
	q.By = a.Access.Caller(r).By()
	return a.Probes.Start(r.Context(), q)
}

func (a *api) probe(_ *http.Request, query url.Values) (any, error) {
	p, err := a.Probes.Get(query.Get("id"))
	if err != nil {
		return nil, refuse(http.StatusNotFound, "%s", err)
	}
	return p, nil
}
