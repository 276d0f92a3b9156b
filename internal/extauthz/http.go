package extauthz

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// authzPath is where the HTTP variant answers, and below.
const authzPath = "/authz"

// HTTPHandler answers what [Service.Check] does over HTTP, and leaves every other
// path to next. It stands before a mux, which would redirect the paths of clients
// that are not clean.
//
// At exactly /authz, for nginx, Traefik and Caddy, the query is the context of the
// route, written by the operator; a parameter that is there twice is an error. The
// request that is asked about is in X-Original-Method and X-Original-URI, or in
// X-Forwarded-Method, -Uri and -Host. If there are both and they differ, nobody
// knows which of them the proxy wrote, and the request is refused. If there is none,
// the caller is not a proxy, but perhaps a web page with a link or an image: it cannot
// add these headers, and its request is refused as misconfigured.
//
// Below /authz/, for Envoy's http_service with this path_prefix, the rest of the
// path with its query is the client's, and there is no context.
//
// A request that passes is answered 200, with the headers for the upstream and the
// client; those for the upstream are empty where there is nothing to say, so that
// a proxy which copies them overwrites the client's. A denial is what the client
// gets. For proxies that pass on only some codes, denied_status in the context
// takes the place of every other denial than 401, and X-Authz-Status has the true
// code. Who cannot decide answers 503 or 500.
//
// Any method will do, and no body is read.
func (s *Service) HTTPHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below := strings.HasPrefix(r.URL.Path, authzPath+"/")
		if !below && r.URL.Path != authzPath {
			next.ServeHTTP(w, r)
			return
		}
		c := s.door.Get()
		c.in.method, c.in.host, c.in.peer, c.in.fields.http = r.Method, r.Host, r.RemoteAddr, r.Header
		deniedStatus := 0
		if below {
			c.in.path = strings.TrimPrefix(r.URL.RequestURI(), authzPath)
		} else {
			c.result, deniedStatus = c.in.readOriginal(r.URL.RawQuery)
		}
		if c.result.passes() {
			_, _ = s.decide(r.Context(), true, c) // it decides, and returns no error
		} else {
			s.opts.Meters.Authorized(c.result)
			if c.result == Misconfigured {
				s.opts.Log.Error("requests to " + authzPath + " are answered with an error: either the query cannot be understood, where " +
					"a parameter may stand once and denied_status is a number from 400 to 499; or the proxy does not say which request it asks about, " +
					"with X-Original-URI, X-Original-Method or their X-Forwarded variants")
			}
		}
		s.write(w, c, c.result, deniedStatus)
		s.door.Put(c)
	})
}

// readOriginal reads the context from a query, and the request that is asked about
// from headers.
func (r *request) readOriginal(query string) (result Result, deniedStatus int) {
	if strings.Count(query, "&") >= maxContext {
		return Misconfigured, 0 // before it is taken apart
	}
	// A template has semicolons, which a person does not think of escaping.
	values, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
	if err != nil {
		return Misconfigured, 0
	}
	for name, all := range values {
		if len(all) > 1 {
			return Misconfigured, 0
		}
		if r.tell(text{name, all[0]}) != nil {
			return Misconfigured, 0
		}
	}
	if code, ok := r.says("denied_status"); ok {
		deniedStatus, err = strconv.Atoi(code)
		if err != nil || deniedStatus < 400 || deniedStatus > 499 {
			return Misconfigured, 0
		}
	}
	told := false
	for _, o := range []struct {
		value *string
		names []string
	}{
		{&r.method, []string{"x-original-method", "x-forwarded-method"}},
		{&r.path, []string{"x-original-uri", "x-forwarded-uri"}},
		{&r.host, []string{"x-forwarded-host"}},
	} {
		found := false
		for _, name := range o.names {
			value, lines := r.fields.get(name, ",")
			if lines > 1 || lines == 1 && found && value != *o.value {
				return Malformed, deniedStatus
			}
			if lines == 1 {
				told, found, *o.value = true, true, value
			}
		}
	}
	if !told {
		return Misconfigured, 0
	}
	return Authenticated, deniedStatus
}

// write writes the response.
func (s *Service) write(w http.ResponseWriter, c *call, r Result, deniedStatus int) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if r.passes() {
		for _, f := range c.upstream.headers {
			h.Set(f.Name, f.Value)
		}
		for _, f := range c.fields {
			h.Set(f.Name, f.Value)
		}
		for _, name := range c.upstream.remove {
			h.Set(name, "")
		}
		if len(c.upstream.remove) > 0 {
			h.Set("X-Envoy-Auth-Headers-To-Remove", strings.Join(c.upstream.remove, ","))
		}
		return
	}
	reply, status := s.reply(c, r), results[r].status
	for _, f := range reply.fields {
		h.Add(f.Name, f.Value)
	}
	if deniedStatus != 0 && !r.failed() {
		h.Set("X-Authz-Status", strconv.Itoa(status))
		if status != http.StatusUnauthorized {
			status = deniedStatus
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(reply.body) // a proxy that is gone needs no answer
}
