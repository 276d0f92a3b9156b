package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

// A route is one method and path of the API.
type route struct {
	method, path string
	writes       bool     // needs a token of a line "act TOKEN"
	params       []string // query parameters
	summary      string   // for the list of the pages and the description of the API
	serve        func(http.ResponseWriter, *http.Request, url.Values)
}

// ServeHTTP answers a request.
func (r route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query, err := readQuery(req, r.params)
	if err == nil {
		_, err = choice(query, "instances", []string{"all"}, "")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r.serve(w, req, query)
}

// An api answers questions over HTTP as JSON.
type api struct{ Pages }

// serve adds the API to mux: a path for each thing that can be asked or done.
func (a *api) serve(mux *http.ServeMux) {
	byPath := make(map[string][]route)
	for _, r := range a.routes() {
		byPath[r.path] = append(byPath[r.path], r)
	}
	for path, all := range byPath {
		mux.Handle(path, a.dispatch(all))
	}
	mux.Handle("/v1/", a.Access.Readers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "This is no path of the API: GET /v1/openapi.yaml lists them.")
	})))
}

// forPeers serves what other instances may ask: the paths that can be asked of all. It asks no other.
func (a *api) forPeers() http.Handler {
	mux, alone := http.NewServeMux(), *a
	alone.Peers = nil
	for _, r := range alone.routes() {
		if slices.Contains(r.params, "instances") {
			mux.Handle(r.path, r)
		}
	}
	return mux
}

// answerAll answers with what this instance has, or with that of all instances, merged, if the query
// wants it.
func answerAll[T any](a *api, w http.ResponseWriter, r *http.Request, query url.Values, here T, sum func([]merge.Answer[T]) T) {
	if query.Has("instances") {
		query.Del("instances")
		here = peers.Ask(r.Context(), a.Peers, r.URL.Path+"?"+query.Encode(), here, sum)
	}
	answer(w, here)
}

// routes returns all paths of the API.
func (a *api) routes() []route {
	all := []route{
		{"GET", "/v1/openapi.yaml", false, nil, "The API as OpenAPI.", serveOpenAPI},
		{"GET", "/v1/usage", false, []string{"subject", "address", "descriptor", "digest", "rule", "cursor"}, "What a customer has used of each limit. Charges nothing. Name one of subject, address, descriptor and digest.", a.usage},
		{"GET", "/v1/logs", false, []string{"rule", "cursor"}, "What all customers have used, 100 counters a page. Charges nothing.", a.logs},
		{"POST", "/v1/reset", true, nil, "Give a customer its limits back, in all instances of the store. Name one of subject, address, descriptor and digest.", a.reset},
		{"GET", "/v1/resets", false, []string{"instances"}, "The last resets of this instance, the newest first.", a.resets},
		{"GET", "/v1/grants", false, nil, "The grants that have not ended, the newest first.", a.grants},
		{"POST", "/v1/grants", true, nil, "Raise the limits of one rule for a customer until a time, in all instances. Name one of subject, address and digest, and one of factor and limit.", a.grant},
		{"DELETE", "/v1/grants/{id}", true, nil, "End a grant now.", a.revoke},
		{"GET", "/v1/denials", false, []string{"rule", "subject", "route", "address", "request", "since", "shadow", "limit", "instances"}, "The last denials of this instance, the newest first.", a.denials},
		{"GET", "/v1/top", false, []string{"by", "order", "minutes", "limit", "instances"}, "Who is denied most, or is nearest to its limits, in this instance. error is how much too large a count may be.", a.top},
		{"GET", "/v1/history", false, []string{"rule", "subject", "from", "to"}, "Decisions and denials of rules by the hour, and the most denied customers by the day, of up to 30 days. Default: the last 7 days.", a.history},
		{"GET", "/v1/rules", false, []string{"q", "domain", "limit"}, "The active rules, with their limits in plain words. found is how many fit.", a.rules},
		{"GET", "/v1/state", false, []string{"instances"}, "The state of this instance: problems, rates, times, store, configuration.", a.state},
		{"POST", "/v1/explain", false, nil, "Which rules a request matches and why, and what the answer would be now. Charges nothing.", a.explain},
		{"POST", "/v1/probe", true, nil, "Deny each call with a key for some seconds, in all instances within one second, charge nothing, and keep what it had.", a.startProbe},
		{"GET", "/v1/probe", false, []string{"id"}, "A probe, and the calls that it has denied.", a.probe},
		{"POST", "/v1/reload", true, nil, "Read rules and tiers again. 422 if they are refused; the last good ones stay.", a.reload},
	}
	if a.Tiers != nil {
		all = append(all,
			route{"GET", "/v1/tiers/lookup", false, []string{"digest", "id"}, "The record of a key or a customer: in this instance, and in the source. Name one of digest and id.", a.tierLookup},
			route{"POST", "/v1/tiers/invalidate", true, nil, `Ask the customer source again, for one of {"digest": ...}, {"subject": ...} and {"all": true}.`, a.tierInvalidate})
	}
	return all
}

func (a *api) dispatch(all []route) http.Handler {
	byMethod := make(map[string]http.Handler)
	var methods []string
	for _, r := range all {
		h := a.Access.Readers(r)
		if r.writes {
			h = a.Access.Actors(h)
		}
		byMethod[r.method] = h
		if methods = append(methods, r.method); r.method == http.MethodGet {
			byMethod[http.MethodHead], methods = h, append(methods, http.MethodHead)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := byMethod[r.Method]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		refuse(w, http.StatusMethodNotAllowed, "%s has no method %s: use %s.", r.URL.Path, repeated(r.Method), strings.Join(methods, " or "))
	})
}

// Bounds of what a request may ask, in bytes.
const (
	maxParam = 8 << 10
	maxBody  = 64 << 10
)

// readQuery returns the parameters of a request. It refuses unknown and doubled ones.
func readQuery(r *http.Request, known []string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query is malformed: write name=value&name=value, with % for other characters")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, fmt.Errorf("unknown parameter %s: %s takes none", repeated(name), r.URL.Path)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("unknown parameter %s: %s takes %s", repeated(name), r.URL.Path, strings.Join(known, ", "))
		case len(values) > 1:
			return nil, fmt.Errorf("the parameter %q is there %d times: give it once", name, len(values))
		case len(values[0]) > maxParam:
			return nil, fmt.Errorf("the parameter %q has %d bytes, and may have at most %d", name, len(values[0]), maxParam)
		case !utf8.ValidString(values[0]):
			return nil, fmt.Errorf("the parameter %q is not UTF-8", name)
		}
	}
	return query, nil
}

// number returns a whole number of a query from 1 to most, or otherwise if it has none.
func number(query url.Values, name string, most, otherwise int) (int, error) {
	text := query.Get(name)
	if !query.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s=%s: write a whole number from 1 to %d", name, repeated(text), most)
	}
	return n, nil
}

// readBody reads the JSON of a request into v. It answers the request if it cannot.
func readBody(w http.ResponseWriter, r *http.Request, v any, example string) (ok bool) {
	data, ok := readJSON(w, r)
	if !ok {
		return false
	}
	if err := strictJSON(data, v); err != nil {
		refuse(w, http.StatusBadRequest, "The body: %s; send %s", err, example)
		return false
	}
	return true
}

// readJSON reads the body of a request. It answers the request if it cannot.
func readJSON(w http.ResponseWriter, r *http.Request) (data []byte, ok bool) {
	// A page of another origin can send only other types without asking first.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "Send the body as Content-Type: application/json.")
		return nil, false
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "The body may have at most %d bytes.", maxBody)
	} else if err != nil {
		refuse(w, http.StatusBadRequest, "The body could not be read. Send it again.")
	}
	return data, err == nil
}

func answer(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "The answer is no JSON. This is a bug; please report it.")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // on an error the client has gone
}

// askTimeout bounds one question to the store.
const askTimeout = 5 * time.Second

// failed answers that a question has no answer.
func failed(w http.ResponseWriter, err error) {
	var invalid *insight.InvalidError
	switch {
	case errors.As(err, &invalid):
		refuse(w, http.StatusBadRequest, "%s", invalid)
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusGatewayTimeout, "The store did not answer within %v. Ask again, or look at GET /v1/state.", askTimeout)
	default:
		refuse(w, http.StatusServiceUnavailable, "%s", err)
	}
}

func (a *api) usage(w http.ResponseWriter, r *http.Request, query url.Values) {
	q := insight.Query{
		Subject: query.Get("subject"), Address: query.Get("address"), Digest: query.Get("digest"), Descriptor: query.Get("descriptor"),
		Rule: query.Get("rule"), Cursor: query.Get("cursor"),
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	u, err := a.Insight.Usage(ctx, q)
	if err != nil {
		failed(w, err)
		return
	}
	u.Limits = list(u.Limits)
	answer(w, u)
}

func (a *api) logs(w http.ResponseWriter, r *http.Request, query url.Values) {
	q := insight.LogsQuery{Cursor: query.Get("cursor")}
	if query.Has("rule") {
		q.Rules = strings.Split(query.Get("rule"), ",")
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	logs, err := a.Insight.Logs(ctx, q)
	if err != nil {
		failed(w, err)
		return
	}
	answer(w, logs)
}

// list returns v, or an empty slice instead of nil, so that its JSON is an array.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func (a *api) reset(w http.ResponseWriter, r *http.Request, _ url.Values) {
	var q insight.ResetRequest
	if !readBody(w, r, &q, `{"subject": "acme", "reason": "ticket 4711"}`) {
		return
	}
	q.Reason = strings.TrimSpace(q.Reason)
	q.By = a.Access.Caller(r).By()
	// The reset goes on if the client leaves, so that it is whole and in the audit log. It has its
	// own time limit.
	done, err := a.Insight.Reset(context.WithoutCancel(r.Context()), q)
	if err != nil {
		failed(w, err)
		return
	}
	done.Removed = list(done.Removed)
	answer(w, done)
}

func (a *api) resets(w http.ResponseWriter, r *http.Request, query url.Values) {
	all := list(a.Insight.Audit())
	for i := range all {
		all[i].Removed = list(all[i].Removed)
	}
	answerAll(a, w, r, query, insight.Resets{Resets: all}, merge.Resets)
}

// The values of parameters that have few.
var (
	topMinutes = []string{"1", "5", "60"} // insight.TopMinutes
	shadows    = []string{"only", "no"}
)

// choice returns a parameter that is one of several, or otherwise if the query does not have it.
func choice(query url.Values, name string, of []string, otherwise string) (string, error) {
	text := query.Get(name)
	switch {
	case !query.Has(name):
		return otherwise, nil
	case !slices.Contains(of, text):
		return "", fmt.Errorf("%s=%s: write one of %s", name, repeated(text), strings.Join(of, ", "))
	default:
		return text, nil
	}
}

const maxTop = 1000

func (a *api) top(w http.ResponseWriter, r *http.Request, query url.Values) {
	var q insight.TopQuery
	var errs [4]error
	var minutes string
	q.By, errs[0] = choice(query, "by", insight.TopBys[:], "subject")
	q.Order, errs[1] = choice(query, "order", insight.TopOrders[:], "denied")
	minutes, errs[2] = choice(query, "minutes", topMinutes, "5")
	q.Limit, errs[3] = number(query, "limit", maxTop, 0)
	for _, err := range errs {
		if err != nil {
			refuse(w, http.StatusBadRequest, "%s", err)
			return
		}
	}
	q.Minutes, _ = strconv.Atoi(minutes) // it is one of topMinutes
	limit := q.Limit
	if query.Has("instances") && a.Peers != nil {
		q.Limit = maxTop // a sum needs more of each list than it shows, or is too large
		query.Set("limit", strconv.Itoa(maxTop))
	}
	answerAll(a, w, r, query, a.Insight.Top(q), func(all []merge.Answer[insight.Top]) insight.Top {
		return merge.Tops(all, maxTop, limit)
	})
}

func (a *api) state(w http.ResponseWriter, r *http.Request, query url.Values) {
	answerAll(a, w, r, query, a.State(), merge.States)
}

// An ExplainRequest is the request that [Pages.Explain] explains.
type ExplainRequest struct {
	// Domain may be empty if the rules have only one.
	Domain string `json:"domain,omitempty" doc:"may be absent if the rules have one domain"`
	// Descriptors are texts as rls explain takes: route=search,api_key=k1.
	Descriptors []string `json:"descriptors" doc:"texts such as route=search,api_key=k1"`
	// Tier, unless empty, replaces the tier of the subject.
	Tier string `json:"tier,omitempty" doc:"in place of the tier of the customer"`
	// Hits is the cost of each descriptor. Nil: 1.
	Hits *uint64 `json:"hits,omitempty" doc:"the cost of each descriptor. Default: 1"`
}

// An Explained is what the rules say to a request. No value of an API key is in it.
type Explained struct {
	// Allowed is what the answer would be now. With Source none it is that with nothing used.
	Allowed bool `json:"allowed"`
	// Source is where what is used was read: memory or redis, or none if it could not be. The first of
	// Steps says it in words.
	Source string `json:"source" doc:"memory, redis, or none: the store does not answer"`
	// Steps describe line by line how the rules come to it. Leading spaces are levels.
	Steps []string `json:"steps"`
	// Rules are the names of the rules that limit the request.
	Rules []string `json:"rules"`
	// Generation is the short name of the rules.
	Generation string `json:"generation"`
}

// maxExplained bounds the descriptors of one request.
const maxExplained = 100

func (a *api) explain(w http.ResponseWriter, r *http.Request, _ url.Values) {
	var q ExplainRequest
	if !readBody(w, r, &q, `{"domain": "edge", "descriptors": ["route=search,api_key=k1"]}`) {
		return
	}
	if n := len(q.Descriptors); n == 0 || n > maxExplained {
		refuse(w, http.StatusBadRequest, "descriptors: there are %d; give 1 to %d.", n, maxExplained)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	e, err := a.Explain(ctx, q)
	if err != nil {
		failed(w, err)
		return
	}
	e.Steps, e.Rules = list(e.Steps), list(e.Rules)
	answer(w, e)
}

// A Reloaded says which generation is active after a reload.
type Reloaded struct {
	Generation string `json:"generation"`
	// Changed is false if the files are as they were.
	Changed bool `json:"changed"`
	Rules   int  `json:"rules"`
}

func (a *api) reload(w http.ResponseWriter, r *http.Request, _ url.Values) {
	before := a.Active().Generation
	if err := a.Reload(r.Context()); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "The last good configuration stays active. What is wrong:\n%s", err)
		return
	}
	now := a.Active()
	answer(w, Reloaded{now.Generation, now.Generation != before, len(now.Rules)})
}
