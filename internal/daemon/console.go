package daemon

import (
	"net/http"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/console"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// console returns the pages for people. They show what the pages for scripts answer.
func (p *process) console(pages admin.Pages) http.Handler {
	return console.New(console.Options{
		Insight: p.operators.insight, History: pages.History, State: pages.State, Peers: pages.Peers, Active: pages.Active, Secrets: p.generation.Secrets,
		Shown:     func(e descriptors.Entry) descriptors.Entry { return p.decider.Rules().Shown(e) },
		TierNames: p.tierNames, Explain: pages.Explain, Access: pages.Access, Log: p.logs.sampled,
	})
}

func (p *process) tierNames() []string {
	if tiers := p.decider.Rules().Tiers(); tiers != nil {
		return tiers.Tiers()
	}
	return nil
}
