package tables

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// A Setting is a setting as the service would use it.
type Setting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`          // secrets are hidden
	From    string `json:"from,omitempty"` // a variable, or a file and a line; empty: the default
}

// Settings writes settings with where they come from.
func Settings(w io.Writer, all []Setting) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SETTING\tVALUE\tFROM")
	for _, s := range all {
		fmt.Fprintf(out, "%s\t%s\t%s\n", s.Setting, cmp.Or(safetext.Text(s.Value), "-"), cmp.Or(safetext.Text(s.From), "default"))
	}
	return out.Flush()
}

// Environment writes what each variable of envoyproxy/ratelimit becomes. The variables that are set come first.
func Environment(w io.Writer, r *compat.Reading) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "VARIABLE\tVALUE\tBECOMES")
	for _, set := range []bool{true, false} {
		for i := range r.Rows {
			if row := &r.Rows[i]; row.Set == set {
				value := "-"
				if set {
					value = strict.Label(row.Value)
				}
				fmt.Fprintf(out, "%s\t%s\t%s\n", row.Name, value, row.Became())
			}
		}
	}
	for _, v := range r.Always {
		fmt.Fprintf(out, "(always)\t-\t%s\n", v)
	}
	return out.Flush()
}
