//go:build tunable

package settings

// With the build tag tunable, which only end-to-end tests set, these values have variables
// again, so that a test need not wait for them or fill them, or be a whole drop-in.
func init() {
	tunable = func(s *Settings) map[string]any {
		return map[string]any{
			"compare.max_in_flight":              &s.Compare.MaxInFlight,
			"compare.timeout":                    &s.Compare.Timeout,
			"grpc.tls.unix_sockets":              &s.GRPC.TLS.UnixSockets,
			"reference.answers":                  &s.Reference.Answers,
			"reference.usage_reports":            &s.Reference.UsageReports,
			"rules.xds.initial_backoff":          &s.Rules.XDS.InitialBackoff,
			"rules.xds.max_backoff":              &s.Rules.XDS.MaxBackoff,
			"grpc.keepalive_min_time":            &s.GRPC.KeepaliveMinTime,
			"insight.per_second":                 &s.Insight.PerSecond,
			"reload.interval":                    &s.Reload.Interval,
			"store.memory.max_keys":              &s.Store.Memory.MaxKeys,
			"store.redis.breaker.failures":       &s.Store.Redis.Breaker.Failures,
			"store.redis.breaker.probe_interval": &s.Store.Redis.Breaker.ProbeInterval,
			"store.redis.max_waiting":            &s.Store.Redis.MaxWaiting,
			"tiers.breaker.retry":                &s.Tiers.Breaker.Retry,
			"tiers.cache.unknown":                &s.Tiers.Cache.Unknown,
			"tiers.cache.unknown_ttl":            &s.Tiers.Cache.UnknownTTL,
			"tiers.timeout":                      &s.Tiers.Timeout,
		}
	}
}
