package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/operate/events"
	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/internal/operate/probelist"
)

const (
	// keptDenials is how many denials a process keeps, and recordedPerSecond how many decisions it
	// records a second. Beyond that, counts are estimates.
	keptDenials       = 1000
	recordedPerSecond = 100
)

func (p *process) openInsight() {
	s := p.settings.Insight
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p.operators.instance = host
	p.openPeers(host)
	rs := func() *rules.Rules { return p.decider.Rules() }
	o := insight.Options{
		Instance: host, Store: p.settings.Store.Type, Rules: rs,
		Overridden: func(domain string) bool { return p.decider.Overridden(domain) },
		Subjects:   p.subjects.resolver(), Tiers: p.subjects.keys(rs), Secrets: p.generation.Secrets,
		Record: insight.Record{Denials: keptDenials, PerSecond: recordedPerSecond, Log: p.logs.main, LogPerSecond: s.LoggedPerSecond},
		Audit:  p.logs.audit, Removed: p.measures.metrics.Reset,
	}
	p.operators.grants = insight.NewGrants(p.store.document(&p.settings.Store, "grants"), time.Now, p.logs.main)
	o.Grants = p.operators.grants
	p.operators.probes = probelist.New(probelist.Options{
		Document: p.store.document(&p.settings.Store, "probes"), Secrets: p.generation.Secrets, Instance: host,
		Now: time.Now, Log: p.logs.main, Audit: p.logs.audit,
	})
	p.store.inspect(&o)
	p.operators.insight = insight.New(o)
	p.open.add(p.operators.insight.Close)
}

// A recorder keeps decisions for operators.
type recorder struct {
	*insight.Insight
	events *events.Events
}

func (r recorder) Budget(req *decide.Request, s *decide.LimitStatus, log string) {
	r.events.Budget(req, s, log)
}

// openEvents makes what announces that budgets are nearly spent. It comes after openInsight.
func (p *process) openEvents() error {
	s := &p.settings.Events
	o := events.Options{Instance: p.operators.instance, Log: p.logs.sampled, Count: p.measures.metrics.Threshold}
	if s.Webhook.Parsed != nil {
		key, err := s.Key()
		if err != nil {
			return fmt.Errorf("events.webhook_secret: %w", err)
		}
		o.Webhook = events.NewWebhook(events.WebhookOptions{URL: s.Webhook.Parsed, Key: key, Log: p.logs.main, Count: metrics.Webhook(p.measures.registry)})
		p.operators.webhook = []part{o.Webhook.Run}
	}
	p.operators.events = events.New(o)
	return nil
}

// openHistory makes what counts denials for operators. With the memory store it keeps them next
// to the snapshot.
func (p *process) openHistory() {
	o := history.Options{Totals: p.readTotals, Denied: p.operators.insight.DeniedIn, Now: time.Now, Log: p.logs.main}
	if r := p.store.redis; r != nil {
		o.Redis = &history.Redis{Client: r.Scopes[0].Client, Prefix: p.settings.Store.Redis.KeyPrefix}
	} else if file := p.settings.Store.Memory.Snapshot; file != "" {
		o.File = file + ".history"
	}
	p.operators.history = history.New(o)
	p.open.add(p.operators.history.Close)
}
