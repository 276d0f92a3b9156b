package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/slidegate/slidegate/internal/operate/probelist"
)

func (a *api) startProbe(w http.ResponseWriter, r *http.Request, _ url.Values) {
	var q probelist.Request
	if !readBody(w, r, &q, `{"key": "a random text of its own", "seconds": 10}`) {
		return
	}
	q.By = a.Access.Caller(r).By()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	p, err := a.Probes.Start(ctx, q)
	if err != nil {
		failed(w, err)
		return
	}
	answer(w, p)
}

func (a *api) probe(w http.ResponseWriter, _ *http.Request, query url.Values) {
	p, err := a.Probes.Get(query.Get("id"))
	if err != nil {
		refuse(w, http.StatusNotFound, "%s", err)
		return
	}
	answer(w, p)
}
