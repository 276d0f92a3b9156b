package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slidegate/slidegate/internal/text/terminal"
)

// examples has an example of each command for its help.
var examples = map[string]string{
	"serve":        "rls serve --config slidegate.yaml",
	"validate":     "rls validate rules/ tiers.yaml",
	"check":        "rls check --envoy 127.0.0.1:9901",
	"explain":      "rls explain --descriptor route=search,api_key=demo-free\nrls explain --live --domain edge --descriptor api_key=demo-free --until-denied 101",
	"diff":         "rls diff rules/ new-rules/",
	"test":         "rls test rules/",
	"replay":       "rls replay --rules rules.yaml access.log",
	"digest":       `printf '%s\n' "$KEY" | rls digest`,
	"usage":        "rls usage acme\nrls usage 203.0.113.7 --rule per-address",
	"reset":        "rls reset acme --rule per-key --reason 'ticket 4711'",
	"grant":        "rls grant acme --rule per-key --factor 2 --until 18:00 --reason 'ticket 4711'\nrls grant --list",
	"denials":      "rls denials --subject acme --since 10m\nrls denials --request 7c1f9e2a-2d51-4b52-a2aa-0c8e7d1b4f63",
	"top":          "rls top --by rule --minutes 60",
	"healthcheck":  "rls healthcheck",
	"envoy-config": "rls envoy-config --rls 127.0.0.1:8081 --upstream 127.0.0.1:9000 > envoy.yaml",
	"env":          "rls env\nrls env --effective",
	"reload":       "rls reload --admin 10.0.0.1:6070,10.0.0.2:6070",
	"version":      "rls version",
}

// explainCommands gives commands their examples, and makes help wrap its text at words.
func explainCommands(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if text := examples[cmd.Name()]; text != "" {
			cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
		}
	}
	cobra.AddTemplateFunc("wrap", func(text string) string { return terminal.Wrap(text, widthOf(os.Stdout)) })
	cobra.AddTemplateFunc("flagsOf", func(flags *pflag.FlagSet, ofAdmin bool) string {
		return flagsOf(flags, ofAdmin).FlagUsagesWrapped(max(widthOf(os.Stdout), 0))
	})
	root.SetUsageTemplate(strings.NewReplacer(
		"{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagsOf .LocalFlags false | trimTrailingWhitespaces}}{{with flagsOf .LocalFlags true}}\n\nAdmin flags (see rls --help):\n{{. | trimTrailingWhitespaces}}{{end}}",
		"{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagsOf .InheritedFlags false | trimTrailingWhitespaces}}",
	).Replace(root.UsageTemplate()))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "{{. | trimTrailingWhitespaces}}", "{{. | trimTrailingWhitespaces | wrap}}", 1))
}
