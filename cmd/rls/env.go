package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/migrate/compat"
	"github.com/slidegate/slidegate/internal/operate/logs"
	"github.com/slidegate/slidegate/internal/operate/tables"
)

type envCmd struct {
	JSON, Effective bool
}

func env(c *cli) *cobra.Command {
	var e envCmd
	cmd := leaf("env", "Print what each variable of envoyproxy/ratelimit becomes; exit 1 if one of them is refused.",
		"The service reads these variables if it is started as ratelimit, or with SLIDEGATE_COMPAT=envoyproxy; rls env reads them in any case. Secrets are hidden.", func() error { return e.Run(c) })
	cmd.Flags().BoolVar(&e.Effective, "effective", false, "instead print every setting, and where it comes from")
	cmd.Flags().BoolVar(&e.JSON, "json", false, "print JSON")
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

// effective prints every setting with where it comes from. What is wrong with them is the error.
func (e envCmd) effective(c *cli) error {
	l, problem := c.load()
	if problem != nil {
		problem = invalid(problem)
	}
	var all []tables.Setting
	for _, s := range settings.Describe(l.Settings) {
		all = append(all, tables.Setting{Setting: s.Path, Value: s.Default, From: l.Origins[s.Path]})
	}
	if e.JSON {
		return cmp.Or(problem, encode(all))
	}
	return cmp.Or(tables.Settings(&stdout, all), problem)
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
	if err := tables.Environment(&stdout, reading); err != nil || len(found) == 0 {
		return err
	}
	return invalid(found)
}

// announce logs what the variables of envoyproxy/ratelimit became, if this process is a
// drop-in for it: one line for all, and a warning for each variable that is ignored.
func (l *loaded) announce(log *zap.Logger) error {
	if l.Reading == nil {
		return nil
	}
	// The line is worth reading at any log.level, and the default of envoyproxy/ratelimit is
	// warn.
	first, err := logs.New(logs.AtInfo(l.Log), coloursOf(os.Stderr))
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
