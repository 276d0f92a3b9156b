package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/internal/edge/extauthz"
	"github.com/slidegate/slidegate/pkg/window"
)

// verdictOf returns the verdict of a request under one limit, per-key.
func verdictOf(d window.Decision, change func(*decide.LimitStatus)) *decide.Verdict {
	s := decide.LimitStatus{
		Rule:     &rules.Rule{Name: "per-key"},
		Limit:    rules.Limit{Limit: window.Limit{Hits: 100, Window: time.Minute}, Name: "per-key"},
		Cost:     1,
		Decision: d,
	}
	if change != nil {
		change(&s)
	}
	return &decide.Verdict{Allowed: d.Allowed, Limits: []decide.LimitStatus{s}, Strictest: []int{0}, Shadowed: -1}
}

// answersText renders example verdicts with the code that answers requests.
func answersText() (string, error) {
	first := verdictOf(window.Decision{Allowed: true, Remaining: 99, UnitAfter: time.Minute, ResetAfter: time.Minute}, nil)
	denied := verdictOf(window.Decision{RetryAfter: 13 * time.Second, UnitAfter: 13 * time.Second, ResetAfter: time.Minute}, nil)
	now := func() time.Time { return time.Unix(1790000000, 0) }

	styles := "| style | headers |\n|---|---|\n"
	for _, style := range []string{rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit, rules.StyleXRateLimitEpoch, rules.StyleReference} {
		headers := answer.NewRenderer(style).Append(nil, first, now)
		if len(headers) < 2 {
			return "", fmt.Errorf("the style %s has %d headers", style, len(headers))
		}
		styles += "| `" + style + "` | " + shown(headers) + " |\n"
	}
	var body bytes.Buffer
	if err := json.Indent(&body, bodyOf(denied, rules.FormUnset), "", "  "); err != nil {
		return "", err
	}
	forms := ""
	for _, name := range rules.Forms[1:] {
		forms += "| `" + name + "` | `" + string(bodyOf(denied, rules.ParseForm(name))) + "` |\n"
	}
	types, err := problemTypes(denied)
	if err != nil {
		return "", err
	}
	reasons := "| `reason` | status | `detail` |\n|---|---|---|\n"
	for _, r := range extauthz.Refusals() {
		if r.Detail == "" {
			r.Detail = "as of any denial"
		}
		reasons += fmt.Sprintf("| `%s` | %d | %s |\n", r.Reason, r.Status, r.Detail)
	}
	keys := "| key | when | value |\n|---|---|---|\n"
	for _, k := range dynamic.Keys {
		keys += fmt.Sprintf("| `%s` | %s | %s |\n", k.Name, k.When, k.Value)
	}
	return fill(written("answers"), map[string]string{
		"STYLES": styles, "RETRY": shownOne(answer.NewRenderer().Append(nil, denied, now)), "TYPES": types, "FORMS": strings.TrimSuffix(forms, "\n"),
		"BODY": "```json\n" + body.String() + "\n```\n", "REASONS": reasons, "KEYS": keys,
	})
}

// bodyOf returns the body of a denial on a route with a form.
func bodyOf(v *decide.Verdict, form rules.Form) []byte {
	_, body := answer.AppendDenial(nil, nil, v, answer.About{Form: form, MCP: `{"id":7}`})
	return body
}

// problemTypes returns the rows of the types of problem documents.
func problemTypes(denied *decide.Verdict) (string, error) {
	rows := ""
	for _, t := range []struct {
		when string
		v    *decide.Verdict
	}{
		{"no quota remains", denied},
		{"the cost is above the limit. It has `cost` and no `retry_after`", verdictOf(window.Decision{Never: true}, nil)},
		{"the store did not decide, and `on_store_error` is `deny`", verdictOf(window.Decision{RetryAfter: time.Second}, func(s *decide.LimitStatus) { s.DecidedBy = verdict.ByRuleDeny })},
	} {
		var problem struct{ Type string }
		if err := json.Unmarshal(bodyOf(t.v, rules.FormUnset), &problem); err != nil || problem.Type == "" {
			return "", errors.Join(errors.New("a denial has no type"), err)
		}
		rows += fmt.Sprintf("| `%s` | %s |\n", problem.Type, t.when)
	}
	return strings.TrimSuffix(rows, "\n"), nil
}

// shown returns headers as a reader writes them.
func shown(headers []answer.Header) string {
	var all []string
	for _, h := range headers {
		all = append(all, code(spelled.Replace(h.Name)+": "+h.Value))
	}
	return strings.Join(all, ", ")
}

func shownOne(headers []answer.Header) string { return strings.Trim(shown(headers), "`") }

// spelled has the usual spelling of the names of headers, which are sent in lower case.
var spelled = strings.NewReplacer("x-", "X-", "ratelimit", "RateLimit", "-policy", "-Policy", "-limit", "-Limit", "-remaining", "-Remaining", "-reset", "-Reset", "retry-after", "Retry-After")
