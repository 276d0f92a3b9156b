package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// trialPage is the content of the page that explains a request.
type trialPage struct {
	Domains, Tiers []string
	Domain, Tier   string
	Descriptors    string
	Cost           string
	// Hidden is true if an API key was removed from the form.
	Hidden bool
	Wrong  string
	Steps  []step
	// Allowed is the answer; Done is true if there is one, and Known if it counts what is used now.
	Done, Allowed, Known bool
}

// A step is one line of an explanation, with the lines that belong to it.
type step struct {
	Text  string
	Depth int
}

// maxDescriptors bounds the descriptors of a trial.
const maxDescriptors = 20

func (c *Console) try(w http.ResponseWriter, r *http.Request) {
	p := trialPage{Cost: "1", Domains: c.opts.Active().Domains(), Tiers: c.opts.TierNames()}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		if c.explain(r.Context(), r.PostForm.Get, &p); p.Wrong != "" {
			code = http.StatusUnprocessableEntity
		}
	}
	c.show(w, r, code, view{Page: "try", Title: "Try it", Data: p})
}

func (c *Console) explain(ctx context.Context, get func(string) string, p *trialPage) {
	t := admin.ExplainRequest{}
	if d := get("domain"); slices.Contains(p.Domains, d) {
		p.Domain, t.Domain = d, d
	} else if d != "" {
		p.Wrong = "The rules have no such domain."
	}
	if v := get("tier"); slices.Contains(p.Tiers, v) {
		p.Tier, t.Tier = v, v
	} else if v != "" {
		p.Wrong = "There is no such tier."
	}
	cost, err := strconv.ParseUint(strings.TrimSpace(get("cost")), 10, 32)
	if err != nil {
		p.Wrong = "Cost: write a whole number from 0 to 4,294,967,295."
	} else {
		t.Hits, p.Cost = &cost, strconv.FormatUint(cost, 10)
	}
	for n, line := range strings.Split(strings.ReplaceAll(get("descriptors"), "\r", ""), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if len(t.Descriptors) == maxDescriptors {
			p.Wrong = fmt.Sprintf("Write at most %d descriptors.", maxDescriptors)
			return
		}
		shown, err := c.showDescriptor(line, p)
		if err != nil {
			p.Wrong = fmt.Sprintf("Line %d is not a descriptor. Write key=value, with a comma between entries, and a backslash before a comma within a value.", n+1)
			continue
		}
		t.Descriptors = append(t.Descriptors, line)
		p.Descriptors += shown + "\n"
	}
	if p.Wrong == "" && len(t.Descriptors) == 0 {
		p.Wrong = "Write at least one descriptor, for example route=search."
	}
	if p.Wrong != "" {
		return
	}
	e, err := c.opts.Explain(ctx, t)
	if err != nil {
		p.Wrong = err.Error()
		return
	}
	p.Done, p.Allowed, p.Known = true, e.Allowed, e.Source != insight.SourceNone
	for _, line := range e.Steps {
		text := strings.TrimLeft(line, " ")
		p.Steps = append(p.Steps, step{Text: text, Depth: min((len(line)-len(text))/2, 3)})
	}
}

// showDescriptor returns a descriptor as the form repeats it: without what may be an API key.
func (c *Console) showDescriptor(line string, p *trialPage) (string, error) {
	entries, err := descriptors.Parse(line)
	if err != nil {
		return "", err
	}
	parts := make([]string, len(entries))
	for i, e := range entries {
		shown := c.opts.Shown(e)
		p.Hidden = p.Hidden || shown != e
		parts[i] = descriptors.Escape(shown.Key)
		if e.Value != "" {
			parts[i] += "=" + descriptors.Escape(shown.Value)
		}
	}
	return strings.Join(parts, ","), nil
}
