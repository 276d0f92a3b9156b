package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/slidegate/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/terminal"
)

// WriteJSON writes a report as JSON, as docs/replay.schema.json describes it. A terminal obeys
// nothing in it.
func WriteJSON(w io.Writer, r *replay.Report) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(complete(r)); err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	_, err := io.WriteString(w, terminal.JSON(b.Bytes()))
	return err
}

// complete returns a report whose lists are there, and empty instead of null.
func complete(r *replay.Report) *replay.Report {
	full := *r
	full.Misleading = misleading(r)
	full.Times.Requests, full.Times.Denied = list(r.Times.Requests), list(r.Times.Denied)
	full.Rules, full.Totals, full.Subjects = list(r.Rules), list(r.Totals), list(r.Subjects)
	full.Rules = append([]replay.RuleReport{}, full.Rules...)
	for i := range full.Rules {
		if what := full.Rules[i].WhatIf; what != nil {
			full.Rules[i].WhatIf = &replay.WhatIf{Requests: what.Requests, LogsShare: what.LogsShare, Rows: list(what.Rows), Smallest: list(what.Smallest)}
		}
	}
	if a := r.Against; a != nil {
		against := *a
		against.NewlyDeniedTop, against.FreedTop = list(a.NewlyDeniedTop), list(a.FreedTop)
		full.Against = &against
	}
	return &full
}

func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
