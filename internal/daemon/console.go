package daemon

import (
	"context"
	"net/http"

	"github.com/slidegate/slidegate/internal/admin"
	"github.com/slidegate/slidegate/internal/console"
)

// console returns the pages for people. They show what the pages for scripts answer.
func (p *process) console(pages admin.Pages) http.Handler {
	return console.New(console.Options{
		Insight: p.insight, State: pages.State, Active: pages.Active, Secrets: p.generation.Secrets, Tiers: pages.Tiers,
		HasKey: p.hasKey, TierNames: p.tierNames, Explain: pages.Explain, Access: pages.Access, Log: p.sampledLog,
	})
}

// hasKey reports whether a text has an API key by the active rules and the tiers of now.
func (p *process) hasKey(ctx context.Context, text string) bool {
	return p.decider.Rules().HasKey(ctx, p.subjects.resolver(), text)
}

// tierNames returns the names of the tiers of the active rules.
func (p *process) tierNames() []string {
	if tiers := p.decider.Rules().Tiers(); tiers != nil {
		return tiers.Tiers()
	}
	return nil
}
