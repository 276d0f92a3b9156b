package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManPage: the page has every command and every flag, the same ones as the help. make
// release-check lets mandoc and man read it.
func TestManPage(t *testing.T) {
	var out strings.Builder
	commands := root()
	if err := writeMan(&out, commands, build{"0.1.0", "0123", "2026-12-01T00:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if want := `.TH RLS 1 "2026-12-01" "slidegate 0.1.0" "User Commands"` + "\n"; !strings.HasPrefix(page, want) {
		t.Errorf("the page begins with %.80q, want %q", page, want)
	}
	var check func(*cobra.Command)
	check = func(parent *cobra.Command) {
		for _, cmd := range parent.Commands() {
			check(cmd)
			if title := ".SS " + roff(cmd.CommandPath()); cmd.IsAvailableCommand() && !cmd.HasSubCommands() && !strings.Contains(page, title) {
				t.Errorf("the page has no %q", title)
			}
			cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
				if want := roff("--" + f.Name); f.Name != "help" && !f.Hidden && !strings.Contains(page, want) {
					t.Errorf("the page has no %q of %s", want, cmd.CommandPath())
				}
			})
		}
	}
	check(commands)
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.Contains(".TH .SH .SS .TP .PP .B .BR .I .nf .fi", strings.Fields(line)[0]) {
			t.Errorf("a line that man takes for a command: %q", line)
		}
	}
}
