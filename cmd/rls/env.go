package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

type envCmd struct {
	JSON, Effective bool
}

func env(c *cli) *cobra.Command {
	var e envCmd
	cmd := leaf("env", "Print what each variable of envoyproxy/ratelimit becomes; exit 1 if one of them is refused.", func() error { return e.Run(c) })
	cmd.Long = cmd.Short + "\n\nThe service reads these variables if it is started as ratelimit, or with SLIDEGATE_COMPAT=envoyproxy. " +
		"rls env reads them in any case, so that you can look before you switch. Secrets are hidden."
	cmd.Flags().BoolVar(&e.Effective, "effective", false, "instead print every setting as the service would use it, and where it comes from")
	cmd.Flags().BoolVar(&e.JSON, "json", false, "print the table as one JSON document")
	return cmd
}

// environment is the document of --json.
type environment struct {
	Valid     bool             `json:"valid"`
	Problems  []strict.Problem `json:"problems,omitempty"`
	Variables []compat.Row     `json:"variables"`
	// Always are the settings of a drop-in that no variable says.
	Always []compat.Value `json:"always"`
}

// errRefused ends rls env after it has printed the problems.
var errRefused = errors.New("the environment is refused")

// An effectiveSetting is a setting as the service would use it.
type effectiveSetting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`          // secrets are hidden
	From    string `json:"from,omitempty"` // a variable, or a file and a line; empty: the default
}

// effective prints every setting with where it comes from. What is wrong with them is the error.
func (e envCmd) effective(c *cli) error {
	l, problem := c.load()
	if problem != nil {
		problem = invalid(problem)
	}
	var all []effectiveSetting
	for _, s := range settings.Describe(l.Settings) {
		all = append(all, effectiveSetting{s.Path, s.Default, l.Origins[s.Path]})
	}
	if e.JSON {
		return cmp.Or(problem, encode(all))
	}
	out := tabwriter.NewWriter(&stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "SETTING\tVALUE\tFROM")
	for _, s := range all {
		fmt.Fprintf(out, "%s\t%s\t%s\n", s.Setting, cmp.Or(safetext.Text(s.Value), "-"), cmp.Or(safetext.Text(s.From), "default"))
	}
	return cmp.Or(out.Flush(), problem)
}

// Run prints the table of all variables.
func (e envCmd) Run(c *cli) error {
	if e.Effective {
		return e.effective(c)
	}
	environ := os.Environ()
	_, problem := compat.Mode(os.Args[0], environ)
	_, reading, found := loadDropIn(environ, c.loadSettings)
	if problem != nil {
		found = append(strict.Problems{*problem}, found...)
	}
	if e.JSON {
		if err := encode(environment{len(found) == 0, found, reading.Rows, reading.Always}); err != nil || len(found) == 0 {
			return err
		}
		return errRefused
	}
	if err := writeEnvironment(&stdout, reading); err != nil {
		return err
	}
	if len(found) > 0 {
		return invalid(found)
	}
	return nil
}

// writeEnvironment writes the table as text. The variables that are set come first.
func writeEnvironment(w io.Writer, r *compat.Reading) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "VARIABLE\tVALUE\tBECOMES")
	isSet := func(row compat.Row) bool { return row.Set }
	isUnset := func(row compat.Row) bool { return !row.Set }
	rows := slices.Concat(slices.DeleteFunc(slices.Clone(r.Rows), isUnset), slices.DeleteFunc(slices.Clone(r.Rows), isSet))
	for i := range rows {
		value := "-"
		if row := &rows[i]; row.Set {
			value = strict.Label(row.Value)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", rows[i].Name, value, rows[i].Became())
	}
	for _, v := range r.Always {
		fmt.Fprintf(out, "(always)\t-\t%s\n", v)
	}
	return out.Flush()
}

// announce logs what the variables of envoyproxy/ratelimit became, if this process is a
// drop-in for it: one line for all, and a warning for each variable that is ignored.
func (l *loaded) announce(log *zap.Logger) error {
	if l.Reading == nil {
		return nil
	}
	// The line is worth reading at any log.level, and the default of envoyproxy/ratelimit is
	// warn.
	first, err := newLogger(atInfo(l.Log))
	if err != nil {
		return err
	}
	first.Info("started in place of envoyproxy/ratelimit; rls env prints what each variable becomes", zap.Strings("variables", l.Reading.Understood()))
	_ = first.Sync() // standard error cannot always be synced
	for i := range l.Reading.Rows {
		if row := &l.Reading.Rows[i]; row.State == compat.StateIgnored {
			log.Warn("a variable of envoyproxy/ratelimit is ignored", zap.String("variable", row.Name), zap.String("why", row.Why))
		}
	}
	return nil
}
