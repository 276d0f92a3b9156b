package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/client"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/tables"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// adminPorts has the flags for calling the admin ports of the running instances of a service.
type adminPorts struct {
	Admin     []string
	TokenFile string
	Timeout   time.Duration
	JSON      bool
	several   bool // several instances are asked
}

// adminHelp describes the admin flags, once for all commands.
const adminHelp = "Commands with the admin flags ask running instances by their admin ports. If one of several does not answer, rls names it, prints the answers of the others, and exits with 3. " +
	"With one address, denials and tops are of all instances that it knows (admin.peers_key_file). With several, --json prints {\"instances\": [{\"admin\": …, \"answer\": …} or {\"admin\": …, \"error\": …}]}.\n\n" +
	"If the admin port wants a token, rls takes it from --token-file or from " + settings.EnvAdminToken + ", not from the command line."

// flags adds the flags to a command that waits so long for an answer, unless --timeout says otherwise.
// They are a separate group in its help.
func (a *adminPorts) flags(cmd *cobra.Command, wait time.Duration) {
	f := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	f.StringSliceVar(&a.Admin, "admin", nil, "`ADDRESSES` of the admin ports or their URLs, separated by commas (default admin.address)")
	f.DurationVar(&a.Timeout, "timeout", wait, "how long to wait for an answer")
	f.BoolVar(&a.JSON, "json", false, "print JSON")
	f.StringVar(&a.TokenFile, "token-file", "", "a `FILE` with the token, alone or as in admin.token_file (default "+settings.EnvAdminToken+", then admin.token_file)")
	f.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{adminFlag: nil} })
	cmd.Flags().AddFlagSet(f)
}

// adminFlag is the annotation of the flags of adminPorts.
const adminFlag = "admin"

// flagsOf returns the flags of a command that are in the group of the admin flags, or the others.
func flagsOf(flags *pflag.FlagSet, ofAdmin bool) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Annotations[adminFlag]; is == ofAdmin {
			out.AddFlag(f)
		}
	})
	return out
}

// How long commands wait for an answer. A reset goes on for half a minute in a large store.
const (
	waitToRead  = 10 * time.Second
	waitToReset = 45 * time.Second
)

// maxInstances bounds the addresses of --admin.
const maxInstances = 256

// client returns a client of the instances that the flags name.
func (a *adminPorts) client(c *cli) (*client.Client, error) {
	if a.Timeout <= 0 {
		return nil, usage("--timeout: expected a duration above 0")
	}
	if len(a.Admin) > maxInstances {
		return nil, usage("--admin: %d addresses are more than %d", len(a.Admin), maxInstances)
	}
	addresses, tokenFile, ofSettings := a.Admin, a.TokenFile, false
	if len(addresses) == 0 {
		s, err := c.load()
		if err != nil {
			return nil, invalid(err)
		}
		if s.Admin.Address == "" {
			return nil, usage("admin.address is off in these settings; name the admin port of the service with --admin")
		}
		if s.DropIn.Pages {
			return nil, usage("in place of envoyproxy/ratelimit the admin port has only the pages of that service, and no admin API")
		}
		addresses = []string{string(s.Admin.Address)}
		if tokenFile == "" && os.Getenv(settings.EnvAdminToken) == "" {
			tokenFile, ofSettings = s.Admin.TokenFile, true
		}
	}
	out, err := client.New(addresses, a.Timeout)
	if err != nil {
		return nil, usage("--admin: %w", err)
	}
	a.several = len(out.Instances) > 1
	switch out.Token, err = client.ReadToken(tokenFile); {
	case err != nil && ofSettings:
		return nil, usage("admin.token_file: %w; name a file with your token in --token-file, or set %s", err, settings.EnvAdminToken)
	case err != nil:
		return nil, usage("--token-file: %w", err)
	}
	return out, nil
}

// noteAlone says on standard error that an answer lacks other instances, if it does.
func noteAlone(ask *client.Client, of insight.Instances) {
	if text := ask.Alone(context.Background(), of); text != "" {
		fmt.Fprintln(os.Stderr, coloursOf(os.Stderr).Yellow(text))
	}
}

// show prints answers: as JSON, or those that are no errors with text, if there is one.
func show[T any](a *adminPorts, all []merge.Answer[T], text func(answered []merge.Answer[T])) error {
	answered := merge.Answered(all)
	switch {
	case a.JSON && a.several:
		return encode(client.Document(all))
	case len(answered) == 0: // the errors are printed on standard error
	case a.JSON:
		return encode(answered[0].Value)
	default:
		text(answered)
	}
	return nil
}

// pageOf returns how to write an answer to a file.
func pageOf(f *os.File, several bool, from string) tables.Page {
	return tables.Page{Width: widthOf(f), Paint: coloursOf(f), Several: several, From: from}
}

func encode(v any) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprint(&stdout, terminal.JSON(b.Bytes()))
	return err
}
