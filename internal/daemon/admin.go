package daemon

import (
	"context"
	"fmt"
	"net"
	"slices"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/docs"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// openAccess returns what decides who may use the admin port. l is its listener, or nil.
func openAccess(s settings.Admin, l net.Listener, log, rareLog *zap.Logger) (*admin.Access, error) {
	tokens, err := admin.Tokens(s.TokenFile, log)
	if err != nil {
		return nil, err
	}
	// A host name means a proxy on this machine, which makes every client loopback.
	free := onLoopback(l) && s.TokenFile == "" && len(s.Hosts) == 0
	return admin.NewAccess(admin.AccessOptions{FreeReads: free, Tokens: tokens, Log: rareLog}), nil
}

// onLoopback reports whether only this machine can reach a listener. The name localhost may be
// an address of a network, so the listener decides, and not the setting.
func onLoopback(l net.Listener) bool {
	if l == nil {
		return false
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (p *process) pages(guard admin.Guard) admin.Pages {
	return admin.Pages{
		Metrics: p.measures.registry, Active: p.generations.page, Tiers: p.subjects.keys(p.decider.Rules), Guard: guard,
		Access: p.operators.access, Insight: p.operators.insight, History: p.operators.history.Read, State: p.state, Shared: admin.Shared{Peers: p.operators.peers, Probes: p.operators.probes}, Reload: p.reloadNow, Explain: p.explain,
		Exemplars: p.measures.tracer != nil, Docs: docs.Handler(p.operators.version),
	}
}

// reloadNow reads the files again, and returns what is wrong with them.
func (p *process) reloadNow(context.Context) error {
	p.generations.reload()
	p.generations.mu.Lock()
	defer p.generations.mu.Unlock()
	return p.generations.refused[fromFiles]
}

// explain says what the active rules say to a request now. It charges nothing.
func (p *process) explain(ctx context.Context, q admin.ExplainRequest) (*admin.Explained, error) {
	g := p.generations.now()
	req, err := explained(g, q)
	if err != nil {
		return nil, &insight.InvalidError{Text: err.Error()}
	}
	var read insight.Options
	p.store.inspect(&read)
	store := &explain.Live{Inspector: read.Inspector}
	var inRedis func(window.LogID) string
	if p.settings.Store.Type == settings.StoreRedis {
		inRedis = func(id window.LogID) string {
			at, _ := p.settings.Store.RedisOf(id.Scope)
			return redisstore.KeyName(at.KeyPrefix, id)
		}
	}
	e, err := explain.Explain(ctx, p.decider.Trial(g.Rules, store), *req, inRedis)
	if err != nil {
		return nil, err
	}
	answer := &admin.Explained{Allowed: e.Verdict.Allowed, Source: p.settings.Store.Type, Generation: g.Digest}
	first := "with what is used now, in the " + answer.Source + " store of " + p.operators.instance
	if store.Err != nil {
		answer.Source, first = insight.SourceNone, "with nothing used, because the store does not answer: what is used cannot be known"
	}
	answer.Steps = append([]string{first}, e.Lines...)
	for i := range e.Verdict.Limits {
		if name := e.Verdict.Limits[i].Rule.Name; !slices.Contains(answer.Rules, name) {
			answer.Rules = append(answer.Rules, name)
		}
	}
	return answer, nil
}

// explained makes the request that q describes. Entries that no rule names are hidden.
func explained(g *config.Generation, q admin.ExplainRequest) (*decide.Request, error) {
	cost := uint64(1)
	if q.Hits != nil {
		cost = *q.Hits
	}
	all := make([]descriptors.Descriptor, len(q.Descriptors))
	for i, text := range q.Descriptors {
		var err error
		if all[i], err = descriptors.Parse(text); err != nil {
			return nil, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
		for j, e := range all[i] {
			if !g.Rules.Names(e.Key) {
				all[i][j] = g.Rules.Shown(e) // no rule matches it either way
			}
		}
	}
	return g.Request(q.Domain, q.Tier, all, cost)
}
