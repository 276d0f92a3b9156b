package fallback

import "github.com/slidegate/slidegate/pkg/window"

// QuotaOf returns what the process may admit now.
func QuotaOf(s *Store, c *window.Check) uint64 {
	q := s.quota(c, s.clock())
	return quotaLimit(c.Limit, q.hits, q.instances).Hits
}

var QuotaLimit = quotaLimit
