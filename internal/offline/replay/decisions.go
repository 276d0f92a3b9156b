package replay

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// Decisions writes one line of JSON for each request, in the order in which they are decided.
// docs/replay-decisions.schema.json describes a line. Call Flush at the end.
type Decisions struct {
	files []string
	out   *bufio.Writer
	json  *json.Encoder
}

// A decision is one line.
type decision struct {
	File       string   `json:"file"`
	Line       int64    `json:"line"`
	Time       string   `json:"time"`
	Allowed    bool     `json:"allowed"`
	Rule       string   `json:"rule,omitempty"`
	Tier       string   `json:"tier,omitempty"`
	Subject    string   `json:"subject,omitempty"`
	Remaining  *uint64  `json:"remaining,omitempty"`
	RetryAfter *float64 `json:"retry_after,omitempty"`
	Against    *against `json:"against,omitempty"`
}

// against is what the rules to compare with decide.
type against struct {
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitempty"`
}

// NewDecisions returns a Decisions that writes to w. files are the names of the logs.
func NewDecisions(w io.Writer, files []string) *Decisions {
	out := bufio.NewWriterSize(w, 64<<10)
	d := &Decisions{files: files, out: out, json: json.NewEncoder(out)}
	d.json.SetEscapeHTML(false)
	return d
}

// Flush writes what is still in memory, and returns the first error of a write.
func (d *Decisions) Flush() error { return d.out.Flush() }

// add writes a line. It returns the first error of a write.
func (d *Decisions) add(r *accesslog.Record, got, was *outcome, compared bool) error {
	line := decision{Line: r.Line, Time: time.Unix(0, int64(r.At)).UTC().Format("2006-01-02T15:04:05.000000000Z07:00"), Allowed: got.allowed}
	if r.File < len(d.files) {
		line.File = d.files[r.File]
	}
	if l := got.limit; l != nil {
		line.Rule, line.Tier, line.Subject, line.Remaining = l.Rule.Name, l.Tier, whose(l, got.req), &l.Decision.Remaining
		if !got.allowed && !l.Decision.Never {
			wait := l.Wait().Seconds()
			line.RetryAfter = &wait
		}
	}
	if compared {
		line.Against = &against{Allowed: was.allowed}
		if was.limit != nil {
			line.Against.Rule = was.limit.Rule.Name
		}
	}
	return d.json.Encode(&line)
}
