// Package monitoring tests deploy/grafana and deploy/prometheus. It writes the dashboards and the
// copies of the alerts with -update. A real Prometheus scrapes rls and Envoy under load: the query of
// each panel must return data, and each alert must fire in a real fault and end after it.
//
// The tests need Debian's prometheus, which has promtool, and Envoy, Redis and PostgreSQL. There is no
// Grafana: the dashboards keep its schema by hand.
package monitoring
