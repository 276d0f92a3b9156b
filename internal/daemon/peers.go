package daemon

import (
	"context"
	"net"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/metrics"
	"github.com/slidegate/slidegate/internal/peers"
)

// followPeers sets the number of instances that share the limits of the store, which has shares.
// If store.peers names them, it counts them now, for two seconds at most, and as long as the
// process runs. A nil resolver asks the servers of the system.
func (s *store) followPeers(ctx context.Context, o settings.Store, resolver *net.Resolver, registry prometheus.Registerer, log *zap.Logger) {
	if o.Peers == "" {
		metrics.Replicas(registry, func() metrics.ReplicaStats { return metrics.ReplicaStats{Instances: o.Replicas} })
		return
	}
	var c *peers.Counter
	c = peers.New(peers.Options{
		Name: o.Peers, Least: o.Replicas, Interval: o.PeersInterval, Resolver: resolver,
		// What instances admitted that have ended since Redis is away, the others must not
		// admit again.
		Keep: func() bool {
			return slices.ContainsFunc(s.state().Nodes, func(n nodeState) bool { return n.Reason != "" })
		},
		Changed: func(before, now int) {
			s.setReplicas(now)
			log.Info("the number of instances that share the limits has changed", zap.Int("before", before), zap.Int("now", now))
		},
		Answers: func(err error) {
			if err == nil {
				log.Info("store.peers has an answer again")
				return
			}
			log.Warn("store.peers has no answer; the last known number of instances stays; check the name, and that it lists instances that are not ready too",
				zap.String("name", o.Peers), zap.Int("instances", c.Number()), zap.Error(err))
		},
	})
	c.Count(ctx)
	metrics.Replicas(registry, func() metrics.ReplicaStats {
		return metrics.ReplicaStats{Instances: c.Number(), Errors: c.Errors()}
	})
	s.parts = append(s.parts, c.Run)
	s.peers = c.String
}
