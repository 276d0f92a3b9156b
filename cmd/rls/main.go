// Command rls is the rate-limit service that stands beside Envoy. "rls --help"
// lists what it can do; docs/ says how.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

// version is set when the binary is linked.
var version = "dev"

// cli is the whole command line. "rls" alone serves.
type cli struct {
	Config string `help:"Settings file. Every setting is also an environment variable; see docs/configure.md." placeholder:"FILE" env:"SLIDEGATE_CONFIG"`

	Serve       serveCmd       `cmd:"" default:"withargs" help:"Serve until SIGTERM. The default command."`
	Validate    validateCmd    `cmd:"" help:"Check settings, rules and tiers; print every problem and exit 1 if there is one."`
	Explain     explainCmd     `cmd:"" help:"Say which rules a request matches and why, and what an empty store would answer."`
	Digest      digestCmd      `cmd:"" help:"Read API keys from standard input, one a line, and print their digests for a tiers file. Of 'Bearer K' and of K with white space around it, the key is K."`
	Inspect     inspectCmd     `cmd:"" help:"Print what a log in Redis holds, for an operator."`
	Tiers       tiersCmd       `cmd:"" help:"Look up keys and subjects in the running service, have it ask anew, print the SQL of tiers.source postgres."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask the service of these settings whether it serves; exit 1 if it does not."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

func main() {
	var c cli
	ctx := kong.Parse(&c,
		kong.Name("rls"),
		kong.Description("Exact sliding-window rate limits for Envoy, by subscription tier."),
		kong.UsageOnError(),
	)
	if err := ctx.Run(&c); err != nil {
		fmt.Fprintln(os.Stderr, "rls:", err)
		os.Exit(1)
	}
}
