package daemon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/compare"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/watch"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/ratelimit"
	"github.com/slidegate/slidegate/internal/tier"
)

// A comparer compares answers with those of the service at compare.address. It is nil if the
// settings name none.
type comparer struct{ *compare.Comparer }

// openComparer opens the comparer of the settings. The other service need not answer yet.
func openComparer(s settings.Compare, secrets *tier.Secrets, m *metrics.Metrics, registry prometheus.Registerer, log *zap.Logger) (*comparer, error) {
	if s.Address == "" {
		return nil, nil
	}
	o := compare.Options{
		Address: s.Address, Share: float64(s.Share), Timeout: s.Timeout, MaxInFlight: s.MaxInFlight,
		Secrets: secrets, Meters: m.Comparisons(registry), Log: log,
	}
	if s.TLS.Enabled {
		var err error
		if o.TLS, err = watch.TLS("compare.tls", s.TLS.Files(), s.TLS.Config, log); err != nil {
			return nil, err
		}
	}
	c, err := compare.New(o)
	if err != nil {
		return nil, fmt.Errorf("compare.address: %w", err)
	}
	return &comparer{c}, nil
}

// service returns what a ratelimit.Service calls.
func (c *comparer) service() ratelimit.Comparer {
	if c == nil {
		return nil
	}
	return c
}

// mark returns the mark of calls that are not compared again.
func (c *comparer) mark() string {
	if c == nil {
		return ""
	}
	return compare.Mark
}

// close ends all calls to the other service.
func (c *comparer) close() error {
	if c == nil {
		return nil
	}
	return c.Close()
}
