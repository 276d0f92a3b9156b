// Package echolimit limits the requests of an Echo server with packages limiter and httplimit.
//
//	limit, err := echolimit.New(l, httplimit.Options{
//		Domain: "shop",
//		Descriptors: [][]httplimit.Key{
//			{httplimit.Header("api_key", "X-API-Key")},
//			{httplimit.Route("route"), httplimit.Address("remote_address", "10.0.0.0/8")},
//		},
//	})
//	e := echo.New()
//	e.Use(limit)
//
// The keys are those of httplimit. Route finds the path of the route, such as /items/:id, in Use and at
// a route. With Pre it finds nothing, because Echo has chosen no route then. The package is a separate
// module, so that programs without Echo do not get it.
package echolimit

import (
	"github.com/labstack/echo/v5"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/httplimit"
)

// New returns middleware that asks l. The error names everything that is wrong with o.
func New(l *limiter.Limiter, o httplimit.Options) (echo.MiddlewareFunc, error) {
	limit, err := httplimit.New(l, o)
	if err != nil {
		return nil, err
	}
	return echo.WrapMiddleware(limit), nil
}
