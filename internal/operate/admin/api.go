package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// serve returns what is written as JSON, or nil for an answer without a body. Its error is a [refusal], an
	// [insight.InvalidError], or says why the store has no answer.
	serve func(*http.Request, url.Values) (any, error)
}

// askTimeout bounds one request that asks a store or a customer source.
const askTimeout = 5 * time.Second

// ServeHTTP answers a request.
func (r route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), askTimeout)
	defer cancel()
	req = req.WithContext(ctx)
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	var out any
	query, err := readQuery(req, r.params)
	if err == nil {
		if _, err = choice(query, "instances", []string{"all"}, ""); err == nil {
			out, err = r.serve(req, query)
		}
	}
	var data []byte
	if err == nil {
		if data, err = json.Marshal(out); err != nil {
			err = refuse(http.StatusInternalServerError, "The answer is no JSON. This is a bug; please report it.")
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch text, is := out.(document); {
	case err != nil:
		writeProblem(w, err)
	case out == nil:
		w.WriteHeader(http.StatusNoContent)
	case is:
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = io.WriteString(w, string(text)) // on an error the client has gone
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(data, '\n')) // on an error the client has gone
	}
}

// An api answers questions over HTTP as JSON.
type api struct{ Pages }

// serve adds the API to mux: a path for each thing that can be asked or done.
func (a *api) serve(mux *http.ServeMux) {
	methods := make(map[string][]string)
	for _, r := range a.routes() {
		h := a.Access.Readers(r)
		if r.writes {
			h = a.Access.Actors(h)
		}
		mux.Handle(r.method+" "+r.path, h)
		if methods[r.path] = append(methods[r.path], r.method); r.method == http.MethodGet { // the mux takes HEAD for it, too
			methods[r.path] = append(methods[r.path], http.MethodHead)
		}
	}
	for path, all := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(all, ", "))
			writeProblem(w, refuse(http.StatusMethodNotAllowed, "%s has no method %s: use %s.", r.URL.Path, repeated(r.Method), strings.Join(all, " or ")))
		})
	}
	mux.Handle("/v1/", a.Access.Readers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, refuse(http.StatusNotFound, "This is no path of the API: GET /v1/openapi.yaml lists them."))
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

// ofAll returns what this instance has, or what all instances have, merged, if the query wants it.
func ofAll[T any](a *api, r *http.Request, query url.Values, here T, sum func([]merge.Answer[T]) T) (any, error) {
	if query.Has("instances") {
		query.Del("instances")
		here = peers.Ask(r.Context(), a.Peers, r.URL.Path+"?"+query.Encode(), here, sum)
	}
	return here, nil
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

// Bounds of what a request may ask, in bytes.
const (
	maxParam = 8 << 10
	maxBody  = 64 << 10
)

// readQuery returns the parameters of a request. It refuses unknown and doubled ones.
func readQuery(r *http.Request, known []string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query is malformed: write name=value&name=value, with %% for other characters")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, bad("unknown parameter %s: %s takes none", repeated(name), r.URL.Path)
		case !slices.Contains(known, name):
			return nil, bad("unknown parameter %s: %s takes %s", repeated(name), r.URL.Path, strings.Join(known, ", "))
		case len(values) > 1:
			return nil, bad("the parameter %q is there %d times: give it once", name, len(values))
		case len(values[0]) > maxParam:
			return nil, bad("the parameter %q has %d bytes, and may have at most %d", name, len(values[0]), maxParam)
		case !utf8.ValidString(values[0]):
			return nil, bad("the parameter %q is not UTF-8", name)
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
		return 0, bad("%s=%s: write a whole number from 1 to %d", name, repeated(text), most)
	}
	return n, nil
}

// readBody reads the JSON of a request into v.
func readBody(r *http.Request, v any, example string) error {
	data, err := readJSON(r)
	if err != nil {
		return err
	}
	if err := strictJSON(data, v); err != nil {
		return bad("The body: %s; send %s", err, example)
	}
	return nil
}

// readJSON reads the body of a request.
func readJSON(r *http.Request) ([]byte, error) {
	// A page of another origin can send only other types without asking first.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, "Send the body as Content-Type: application/json.")
	}
	data, err := io.ReadAll(r.Body)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, refuse(http.StatusRequestEntityTooLarge, "The body may have at most %d bytes.", maxBody)
	} else if err != nil {
		return nil, bad("The body could not be read. Send it again.")
	}
	return data, nil
}

func (a *api) usage(r *http.Request, query url.Values) (any, error) {
	return a.Insight.Usage(r.Context(), insight.Query{
		Subject: query.Get("subject"), Address: query.Get("address"), Digest: query.Get("digest"), Descriptor: query.Get("descriptor"),
		Rule: query.Get("rule"), Cursor: query.Get("cursor"),
	})
}

func (a *api) logs(r *http.Request, query url.Values) (any, error) {
	q := insight.LogsQuery{Cursor: query.Get("cursor")}
	if query.Has("rule") {
		q.Rules = strings.Split(query.Get("rule"), ",")
	}
	return a.Insight.Logs(r.Context(), q)
}

// list returns v, or an empty slice instead of nil, so that its JSON is an array.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func (a *api) reset(r *http.Request, _ url.Values) (any, error) {
	var q insight.ResetRequest
	if err := readBody(r, &q, `{"subject": "acme", "reason": "ticket 4711"}`); err != nil {
		return nil, err
	}
	q.Reason = strings.TrimSpace(q.Reason)
	q.By = a.Access.Caller(r).By()
	// The reset goes on if the client leaves, so that it is whole and in the audit log. It has its
	// own time limit.
	return a.Insight.Reset(context.WithoutCancel(r.Context()), q)
}

func (a *api) resets(r *http.Request, query url.Values) (any, error) {
	return ofAll(a, r, query, insight.Resets{Resets: list(a.Insight.Audit())}, merge.Resets)
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
		return "", bad("%s=%s: write one of %s", name, repeated(text), strings.Join(of, ", "))
	default:
		return text, nil
	}
}

const maxTop = 1000

func (a *api) top(r *http.Request, query url.Values) (any, error) {
	var q insight.TopQuery
	var errs [4]error
	var minutes string
	q.By, errs[0] = choice(query, "by", insight.TopBys[:], "subject")
	q.Order, errs[1] = choice(query, "order", insight.TopOrders[:], "denied")
	minutes, errs[2] = choice(query, "minutes", topMinutes, "5")
	q.Limit, errs[3] = number(query, "limit", maxTop, 0)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	q.Minutes, _ = strconv.Atoi(minutes) // it is one of topMinutes
	limit := q.Limit
	if query.Has("instances") && a.Peers != nil {
		q.Limit = maxTop // a sum needs more of each list than it shows, or is too large
		query.Set("limit", strconv.Itoa(maxTop))
	}
	return ofAll(a, r, query, a.Insight.Top(q), func(all []merge.Answer[insight.Top]) insight.Top {
		return merge.Tops(all, maxTop, limit)
	})
}

func (a *api) state(r *http.Request, query url.Values) (any, error) {
	return ofAll(a, r, query, a.State(), merge.States)
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

func (a *api) explain(r *http.Request, _ url.Values) (any, error) {
	var q ExplainRequest
	if err := readBody(r, &q, `{"domain": "edge", "descriptors": ["route=search,api_key=k1"]}`); err != nil {
		return nil, err
	}
	if n := len(q.Descriptors); n == 0 || n > maxExplained {
		return nil, bad("descriptors: there are %d; give 1 to %d.", n, maxExplained)
	}
	e, err := a.Explain(r.Context(), q)
	if err != nil {
		return nil, err
	}
	e.Steps, e.Rules = list(e.Steps), list(e.Rules)
	return e, nil
}

// A Reloaded says which generation is active after a reload.
type Reloaded struct {
	Generation string `json:"generation"`
	// Changed is false if the files are as they were.
	Changed bool `json:"changed"`
	Rules   int  `json:"rules"`
}

func (a *api) reload(r *http.Request, _ url.Values) (any, error) {
	before := a.Active().Generation
	if err := a.Reload(r.Context()); err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "The last good configuration stays active. What is wrong:\n%s", err)
	}
	now := a.Active()
	return Reloaded{now.Generation, now.Generation != before, len(now.Rules)}, nil
}
