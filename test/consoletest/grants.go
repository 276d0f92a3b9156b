package consoletest

import (
	"context"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// Grants implements console.Insight.
func (s *service) Grants() []*grant.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.grants)
}

// Grant implements console.Insight.
func (s *service) Grant(_ context.Context, r insight.GrantRequest) (*grant.Grant, error) {
	if s.kind == "degraded" {
		return nil, errUnavailable
	}
	if err := r.Valid(); err != nil {
		return nil, &insight.InvalidError{Text: err.Error()}
	}
	if err := insight.CheckReason(r.Reason); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &grant.Grant{ID: grant.NewID(), Rule: r.Rule, Caller: r.Caller, Amount: r.Amount, Until: s.now().Add(time.Hour), Reason: r.Reason, By: r.By, At: s.now()}
	s.grants = append(s.grants, g)
	return g, nil
}

// Revoke implements console.Insight.
func (s *service) Revoke(_ context.Context, id, _ string) (*grant.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.grants {
		if g.ID == id {
			s.grants = slices.Delete(s.grants, i, i+1)
			return g, nil
		}
	}
	return nil, insight.ErrNoGrant
}

// Audit implements console.Insight.
func (s *service) Audit() []insight.Reset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resets)
}
