package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slidegate/slidegate/internal/docs"
)

// manColumns is the width of the flags on the page.
const manColumns = 78

// manOf returns the command that packagers call. It is hidden: for readers there are --help and
// the finished page.
func manOf() *cobra.Command {
	cmd := leaf("man", "Print the manual page rls(1).", nil)
	cmd.Hidden = true
	cmd.RunE = begin(func([]string) error { return writeMan(&stdout, cmd.Root(), this) })
	return cmd
}

// writeMan writes the manual page of all commands. Equal builds write equal pages.
func writeMan(w io.Writer, root *cobra.Command, b build) error {
	day, _, _ := strings.Cut(b.Date, "T")
	if b.Date == unknown {
		day = "" // man shows its own placeholder
	}
	m := manPage{w: w}
	m.linef(`.TH RLS 1 "%s" "slidegate %s" "User Commands"`, day, roff(b.Version))
	m.linef(".SH NAME\nrls \\- %s", roff(lower(strings.TrimSuffix(root.Short, "."))))
	m.linef(".SH SYNOPSIS\n.B rls\n[\\fIflags\\fR] [\\fIcommand\\fR]")
	m.linef(".SH DESCRIPTION")
	about, _, _ := strings.Cut(root.Long, adminHelp)
	m.text(about)
	m.linef(".SH OPTIONS\nAll commands take")
	m.flags(root.PersistentFlags())
	m.linef(".SH COMMANDS")
	m.commands(root)
	m.linef(".SH ADMIN FLAGS")
	m.text(adminHelp)
	if usage, _, err := root.Find([]string{"usage"}); err == nil {
		m.flags(flagsOf(usage.Flags(), true))
	}
	m.linef(".SH ENVIRONMENT\nEvery setting is a variable too: the setting\n.B rules.path\nis\n.BR SLIDEGATE_RULES_PATH .")
	m.linef("If\n.B NO_COLOR\nis set,\n.B rls\nwrites no colours.")
	m.linef(".SH EXIT STATUS")
	m.text(exitHelp)
	m.linef(".SH SEE ALSO\n%s", docs.URL(b.Version, "start.md"))
	return m.err
}

// A manPage writes roff and keeps the first error.
type manPage struct {
	w   io.Writer
	err error
}

func (m *manPage) linef(format string, args ...any) {
	if m.err == nil {
		_, m.err = fmt.Fprintf(m.w, format+"\n", args...)
	}
}

// text writes paragraphs, and lines that begin with white space as they are.
func (m *manPage) text(s string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			m.linef(".PP")
		}
		as := strings.HasPrefix(paragraph, " ")
		if as {
			m.linef(".nf")
		}
		for line := range strings.Lines(paragraph) {
			m.linef("%s", roff(strings.TrimRight(line, "\n")))
		}
		if as {
			m.linef(".fi")
		}
	}
}

// commands writes the commands below a command, and those below them.
func (m *manPage) commands(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if !cmd.IsAvailableCommand() && cmd.Name() != "help" {
			continue
		}
		if cmd.HasSubCommands() {
			m.commands(cmd)
			continue
		}
		m.linef(".SS %s", roff(cmd.UseLine()))
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		m.text(text)
		m.flags(flagsOf(cmd.NonInheritedFlags(), false))
		if flagsOf(cmd.Flags(), true).HasFlags() {
			m.linef(".PP\nIt takes the admin flags, below.")
		}
	}
}

// flags writes flags as the help does.
func (m *manPage) flags(flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		m.linef(".PP\n.nf")
		for line := range strings.Lines(flags.FlagUsagesWrapped(manColumns)) {
			m.linef("%s", roff(strings.TrimRight(line, "\n")))
		}
		m.linef(".fi")
	}
}

// roff escapes text. A point or an apostrophe at the beginning of a line would be a command.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\t", "    ").Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
