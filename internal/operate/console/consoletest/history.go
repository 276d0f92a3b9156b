package consoletest

import (
	"context"
	"errors"
	"time"

	"github.com/slidegate/slidegate/internal/operate/history"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// history makes up 30 days of a rule or of a customer.
func (s *service) history(_ context.Context, q history.Query) (*history.History, error) {
	h := &history.History{From: q.From, To: q.To, Of: history.OfService}
	switch s.kind {
	case "empty":
		return h, nil
	case "degraded":
		return nil, errors.New("Redis does not answer")
	case "huge":
		h.Of = history.OfInstance
	}
	for i, v := range wave(history.Days, 400, 1, 3, q.To) {
		at := q.From.AddDate(0, 0, i)
		if q.Rule != "" {
			h.Rules = append(h.Rules, history.RuleHistory{Domain: "edge", Rule: q.Rule, Hours: []history.Hour{{Hour: at.Add(9 * time.Hour), Decisions: uint64(40 * v), Denials: uint64(v)}}})
		} else {
			h.Days = append(h.Days, history.Day{Day: at.Format(time.DateOnly), Subjects: []insight.TopEntry{{Name: q.Subject, Count: uint64(v)}}})
		}
	}
	return h, nil
}
