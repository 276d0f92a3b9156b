package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/insight"
)

// completeTimeout bounds how long a shell waits for names of the running service.
const completeTimeout = 500 * time.Millisecond

// A namer returns names that begin with a text, from the first instance.
type namer func(ctx context.Context, c *caller, from instance, begin string) []string

// completion asks the service for names. If it cannot, there are none.
func completion(c *cli, ports *adminPorts, names namer) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		asked := *ports
		asked.Timeout = completeTimeout
		caller, err := asked.caller(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
		defer cancel()
		var found []string
		for _, name := range names(ctx, caller, caller.instances[0], begin) {
			if strings.HasPrefix(name, begin) && harmless(name) {
				found = append(found, name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// maxCompleted bounds the length of a name on a command line, in bytes.
const maxCompleted = 128

// harmlessBytes mean nothing to a shell within a word.
const harmlessBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@/+,=%-"

// harmless reports whether a shell takes a name for nothing but a word. A client may have
// chosen a name.
func harmless(name string) bool {
	return name != "" && len(name) <= maxCompleted && name[0] != '-' && strings.Trim(name, harmlessBytes) == ""
}

// ruleNames returns the names of rules.
func ruleNames(ctx context.Context, c *caller, from instance, begin string) (names []string) {
	var out struct{ Rules []struct{ Name string } }
	if c.call(ctx, from, http.MethodGet, "/v1/rules?"+url.Values{"q": {begin}}.Encode(), nil, &out) != nil {
		return nil
	}
	for _, r := range out.Rules {
		names = append(names, r.Name)
	}
	return names
}

// subjectNames returns the subjects that were denied most in the last hour.
func subjectNames(ctx context.Context, c *caller, from instance, _ string) (names []string) {
	var out insight.Top
	if c.call(ctx, from, http.MethodGet, "/v1/top?by=subject&minutes=60&limit=100&order=denied", nil, &out) != nil {
		return nil
	}
	for _, e := range out.Entries {
		if e.Digest == "" && e.Address == "" { // otherwise the name is that of a key or an address
			names = append(names, e.Name)
		}
	}
	return names
}

// completeParty completes the flags and the argument of a command about a party.
func completeParty(cmd *cobra.Command, c *cli, ports *adminPorts) {
	subjects := completion(c, ports, subjectNames)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return subjects(cmd, args, begin)
	}
	completeFlag(cmd, "rule", c, ports, ruleNames)
}

func completeFlag(cmd *cobra.Command, flag string, c *cli, ports *adminPorts, names namer) {
	register(cmd, flag, completion(c, ports, names))
}

func completeWords(cmd *cobra.Command, flag string, words ...string) {
	register(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// require refuses a command without the flag.
func require(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagRequired(flag); err != nil {
		panic(err) // the flag is defined before
	}
}

func register(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag is defined before
	}
}
