package extauthz

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const authzPath = "/authz"

// HTTPHandler serves Check over HTTP, and passes every other path to next. Put it in front
// of a mux: a mux redirects a path with a double slash or dots, and clients send such
// paths.
//
// /authz alone is for nginx, Traefik and Caddy. Its query is the context of the route,
// which the operator writes. A parameter that occurs twice is an error. The proxy describes
// the client's request in X-Original-Method and X-Original-URI, or in X-Forwarded-Method,
// -Uri and -Host. If two of these headers contradict each other, the request is refused:
// the client may have sent one of them. If all of them are absent, the request does not
// come from a proxy. It may come from a web page, which cannot add these headers. It is
// refused as misconfigured.
//
// Paths that begin with /authz/ are for Envoy's http_service with this path_prefix. The
// rest of the path and its query belong to the client's request. There is no context.
//
// A request that passes is answered 200, with the headers for the upstream and for the
// client. A header for the upstream without a value is sent empty: a proxy that copies it
// then overwrites the client's own. A denial is the response for the client. Some proxies
// pass on only some codes. For them, denied_status in the context replaces the code of every
// denial except 401, and X-Authz-Status has the true code. If no decision is possible, the
// code is 503 or 500.
//
// The handler accepts every method and reads no body.
func (s *Service) HTTPHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below := strings.HasPrefix(r.URL.Path, authzPath+"/")
		if !below && r.URL.Path != authzPath {
			next.ServeHTTP(w, r)
			return
		}
		c := s.handler.Get()
		c.in.method, c.in.host, c.in.peer, c.in.fields.http = r.Method, r.Host, r.RemoteAddr, r.Header
		deniedStatus := 0
		if below {
			c.in.path = strings.TrimPrefix(r.URL.RequestURI(), authzPath)
		} else {
			c.result, deniedStatus = c.in.readOriginal(r.URL.RawQuery)
		}
		if c.result.passes() {
			if s.handler.Wait(r.Context(), c) != nil {
				c.result = Undecided
			}
		} else {
			s.opts.Meters.Authorized(c.result)
			if c.result == Misconfigured {
				s.opts.Log.Error(misconfigured)
			}
		}
		s.write(w, c, c.result, deniedStatus)
		s.handler.Put(c)
	})
}

// misconfigured is the log line about a request to exactly authzPath that cannot be read.
const misconfigured = "requests to " + authzPath + " are answered with an error: the query is invalid, or the proxy does not describe the client's request. " +
	"Each parameter may occur once, and denied_status is a number from 400 to 499. " +
	"The proxy must send X-Original-URI, X-Original-Method or their X-Forwarded variants"

// readOriginal reads the context from a query, and the client's request from headers. The
// result is Authenticated if both can be read.
func (r *request) readOriginal(query string) (result Result, deniedStatus int) {
	if strings.Count(query, "&") >= maxContext {
		return Misconfigured, 0 // parsing it would take memory
	}
	// Operators do not escape the semicolons of a template.
	values, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
	if err != nil {
		return Misconfigured, 0
	}
	for name, all := range values {
		if len(all) > 1 {
			return Misconfigured, 0
		}
		if r.addContext(text{name, all[0]}) != nil {
			return Misconfigured, 0
		}
	}
	if code, ok := r.contextOf("denied_status"); ok {
		deniedStatus, err = strconv.Atoi(code)
		if err != nil || deniedStatus < 400 || deniedStatus > 499 {
			return Misconfigured, 0
		}
	}
	forwarded := false
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
				forwarded, found, *o.value = true, true, value
			}
		}
	}
	if !forwarded {
		return Misconfigured, 0
	}
	return Authenticated, deniedStatus
}

// write writes the response. deniedStatus zero means the true status.
func (s *Service) write(w http.ResponseWriter, c *call, r Result, deniedStatus int) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if r.passes() {
		for _, f := range c.upstream.headers {
			h.Set(f.Name, f.Value)
		}
		for _, f := range c.reply.fields {
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
	_, _ = w.Write(reply.body) // on an error the proxy has gone
}
