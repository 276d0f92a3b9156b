package consoletest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// Search implements console.Insight.
func (s *service) Search(ctx context.Context, typed string) (f insight.Found) {
	typed = strings.TrimSpace(typed)
	if q, ok := s.Find(ctx, insight.Typed(typed), typed); ok {
		return insight.Found{Query: q}
	}
	if s.IsKey(ctx, typed) {
		return insight.Found{Query: insight.Query{Digest: s.secrets.Digest(typed)}}
	}
	for _, d := range s.Denials(insight.Filter{Request: typed, Limit: 1}).Denials {
		f.RequestID = d.RequestID
	}
	return f
}

// Suggest implements console.Insight.
func (s *service) Suggest(typed string) []string {
	return strict.Suggest(typed, slices.Values([]string{"acme", "globex", "initech", s.odd(0, "acme-labs")}), 10)
}

func (s *service) explain(_ context.Context, r admin.ExplainRequest) (*admin.Explained, error) {
	if strings.Contains(r.Descriptors[0], "fail") {
		return nil, errors.New("the rules have no such domain")
	}
	source, first := "redis", "with what is used now, in the redis store of rls-0"
	if s.kind == "degraded" {
		source, first = insight.SourceNone, "with nothing used, because the store does not answer: what is used cannot be known"
	}
	return &admin.Explained{Allowed: true, Source: source, Rules: []string{"search"}, Generation: "51850eff4944", Steps: []string{
		first,
		"descriptor 1",
		"  route=" + s.odd(0, "search") + " matches this value",
		"  api_key=*** matches the key with any value",
		"  rule search for tier free of subject acme: 10 per 10s",
		"    log   {id.acme}:edge|route=search/api_key:id.acme:10000000",
		"    while the store cannot decide: local",
		"    cost  1, has room, 9 remain",
		"answer: OK",
		"  headers and metadata describe the rule search",
	}}, nil
}
