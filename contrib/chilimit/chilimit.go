// Package chilimit limits the requests of a chi router with packages limiter and httplimit.
//
//	limit, err := httplimit.New(l, httplimit.Options{
//		Domain: "shop",
//		Descriptors: [][]httplimit.Key{
//			{httplimit.Header("api_key", "X-API-Key")},
//			{chilimit.Route("route"), httplimit.Address("remote_address", "10.0.0.0/8")},
//		},
//	})
//	r := chi.NewRouter()
//	r.Use(limit)
//
// A chi router takes the middleware of httplimit as it is. This package has a key with the pattern of
// the route, which is known before the router has chosen one. It is a separate module, so that
// programs without chi do not get it.
package chilimit

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/slidegate/slidegate/limiter/httplimit"
)

// Route is a key with the pattern of the route, such as /items/{id}, from the root of the router on. It
// works in Use, With and Group. Without a route for the request the key finds nothing.
func Route(entry string) httplimit.Key {
	return httplimit.Func(entry, func(r *http.Request) (string, bool) {
		pattern := pattern(r)
		return pattern, pattern != ""
	})
}

func pattern(r *http.Request) string {
	at := chi.RouteContext(r.Context())
	if at == nil {
		return ""
	}
	chosen := at.RoutePattern()
	if chosen != "" && !strings.HasSuffix(chosen, "*") || at.Routes == nil {
		return chosen
	}
	// The router has not chosen yet, or has chosen a router below it.
	method := at.RouteMethod
	if method == "" {
		method = r.Method
	}
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	if len(at.RoutePatterns) == 0 && at.RoutePath != "" {
		path = at.RoutePath // middleware has changed it, such as StripSlashes
	}
	whole := chi.NewRouteContext()
	if found := at.Routes.Find(whole, method, path); found != "" {
		whole.RoutePatterns = []string{found}
		return whole.RoutePattern()
	}
	return chosen
}
