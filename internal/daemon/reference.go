package daemon

import (
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/migrate/compat/stats"
)

// reference is the metrics of envoyproxy/ratelimit. The zero value counts nothing.
type reference struct {
	stats  *stats.Stats  // nil: off
	server *http.Server  // nil: no listener
	sender *stats.Sender // nil: no statsd server
}

func openReference(s settings.Settings, log *zap.Logger) (reference, error) {
	var r reference
	statsd, scraped := s.DropIn.Statsd, s.DropIn.Metrics
	if statsd.Address == "" && scraped.Address == "" {
		return r, nil
	}
	mapping, err := stats.OpenMapping(s.DropIn)
	if err != nil {
		return r, err
	}
	r.stats = stats.New(stats.Options{
		MaxNames: s.Metrics.MaxDetailSeries,
		Memory:   s.Store.Type == settings.StoreRedis && s.DropIn.LocalCache,
		Mapping:  mapping,
		Times:    statsd.Address != "",
	})
	if mapping != nil {
		r.server = newHTTP(r.stats.Handler(scraped.Path, log), log)
	}
	if statsd.Address != "" {
		r.sender = stats.NewSender(r.stats, stats.SenderOptions{
			Network: statsd.Protocol, Address: statsd.Address, Interval: statsd.Interval, Tags: s.DropIn.Tags, Log: log,
		})
	}
	return r, nil
}

// hits returns the meters of hits, or nil.
func (r reference) hits() decide.HitMeters {
	if r.stats == nil {
		return nil
	}
	return r.stats
}

func (r reference) methods() map[string]*stats.Method {
	if r.stats == nil {
		return nil
	}
	return map[string]*stats.Method{
		rlsv3.RateLimitService_ShouldRateLimit_FullMethodName: r.stats.Method(stats.ShouldRateLimit),
		healthv1.Health_Check_FullMethodName:                  r.stats.Method(stats.HealthCheck),
	}
}

func (r reference) measure(s *redisStore) {
	if r.stats != nil && s != nil {
		s.measure(r.stats)
	}
}

// parts returns the parts that run until the process stops.
func (r reference) parts() []part {
	if r.sender == nil {
		return nil
	}
	return []part{r.sender.Run}
}
