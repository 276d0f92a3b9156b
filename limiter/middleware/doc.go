// Package middleware is what the middleware of every framework has in common: packages httplimit
// and grpclimit use it, and so do those below contrib. It makes entries of requests ([Key], with
// addresses behind proxies), decides ([Limit]), and merges header fields of nested middleware.
// Import it to write middleware for another framework. R is how that framework passes a request,
// such as *http.Request.
//
//	limit, err := middleware.New("ownlimit", l, middleware.Options[*own.Request]{ … })
//	d, answer := limit.Ask(r.Context(), r)
//	defer middleware.Done(r.Context(), &d)
//	switch answer {
//	case middleware.Deny: // answer 429 with AppendHeaders and d.Body
//	case middleware.Fail: // answer 503
//	case middleware.Tell: // serve it, with AppendHeaders
//	case middleware.Pass: // serve it
//	}
//
// A [Key] makes one entry from a request. Each list of keys makes one descriptor, as an Envoy rate
// limit with its actions does. If a key finds nothing in a request, the request has no such
// descriptor, unless the key is [Key.Optional].
package middleware
