package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// Grants are those that have not ended.
type Grants struct {
	Grants []*grant.Grant `json:"grants"` // the newest first
}

func (a *api) grants(w http.ResponseWriter, _ *http.Request, _ url.Values) {
	answer(w, Grants{list(a.Insight.Grants())})
}

func (a *api) grant(w http.ResponseWriter, r *http.Request, _ url.Values) {
	var q insight.GrantRequest
	if !readBody(w, r, &q, `{"subject": "acme", "rule": "per-key", "factor": 2, "until": "2h", "reason": "ticket 4711"}`) {
		return
	}
	q.Reason = strings.TrimSpace(q.Reason)
	q.By = a.Access.Caller(r).By()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	g, err := a.Insight.Grant(ctx, q)
	if err != nil {
		failed(w, err)
		return
	}
	answer(w, g)
}

func (a *api) revoke(w http.ResponseWriter, r *http.Request, _ url.Values) {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	g, err := a.Insight.Revoke(ctx, r.PathValue("id"), a.Access.Caller(r).By())
	switch {
	case errors.Is(err, insight.ErrNoGrant):
		refuse(w, http.StatusNotFound, "%s", err)
	case err != nil:
		failed(w, err)
	default:
		answer(w, g)
	}
}
