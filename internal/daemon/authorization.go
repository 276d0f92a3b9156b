package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// maxUnknownKeys is how many unknown API keys an address may send in a minute.
const maxUnknownKeys = 20

type authorizationMeters struct {
	*metrics.Metrics
	results []prometheus.Counter // by number
}

func newAuthorizationMeters(registry prometheus.Registerer, m *metrics.Metrics) *authorizationMeters {
	vec := metrics.Authorization(registry)
	a := &authorizationMeters{Metrics: m}
	for _, r := range extauthz.Results() {
		a.results = append(a.results, vec.WithLabelValues(r.String()))
	}
	return a
}

// Authorized implements extauthz.Meters.
func (a *authorizationMeters) Authorized(r extauthz.Result) { a.results[r].Inc() }
