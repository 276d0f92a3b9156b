package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidegate/slidegate/internal/tier/pgsource"
)

// tiers returns the commands with which support looks into API keys and subjects.
func tiers(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "tiers", Short: "Look up keys and subjects in the running service, make it ask its source again, print the SQL of tiers.source postgres."}
	var lookup tiersLookupCmd
	look := leaf("lookup", "Print what the running service holds of a key or a subject, and what its source of tiers answers.", func() error { return lookup.Run(c) })
	lookup.who.flags(look)
	lookup.adminPort.flags(look)
	var invalidate tiersInvalidateCmd
	anew := leaf("invalidate", "Make the running service ask its source of tiers again.", func() error { return invalidate.Run(c) })
	invalidate.who.flags(anew)
	anew.Flags().BoolVar(&invalidate.All, "all", false, "all keys and subjects")
	invalidate.adminPort.flags(anew)
	cmd.AddCommand(look, anew, leaf("schema", "Print the SQL that creates the tables of tiers.source postgres. Running it again is safe.", tiersSchemaCmd{}.Run))
	return cmd
}

// who names a key or a subject.
type who struct {
	Digest, ID string
}

func (w *who) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Digest, "digest", "", "the `HEX` digits of the digest of an API key, as rls digest prints them")
	cmd.Flags().StringVar(&w.ID, "id", "", "`ID` of a subject")
}

// adminPort has the flags for calling the admin port of the running service.
type adminPort struct {
	Admin, TokenFile string
	Timeout          time.Duration
}

func (a *adminPort) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.Admin, "admin", "", "`ADDRESS` of the service's admin port, as in admin.address, or its URL (default admin.address of the settings)")
	cmd.Flags().DurationVar(&a.Timeout, "timeout", 10*time.Second, "how long to wait for the answer")
	tokenFlag(cmd, &a.TokenFile)
}

type tiersLookupCmd struct {
	who
	adminPort
}

// Run prints the answer of the service, which is JSON.
func (t tiersLookupCmd) Run(c *cli) error {
	query := url.Values{}
	switch {
	case t.Digest != "" && t.ID != "":
		return usage("--digest and --id: give one of the two")
	case t.Digest != "":
		query.Set("digest", t.Digest)
	case t.ID != "":
		query.Set("id", t.ID)
	default:
		return usage("name a key by --digest or a subject by --id")
	}
	body, err := t.ask(c, http.MethodGet, "/v1/tiers/lookup?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w; check that --admin or admin.address is the admin port", err)
	}
	_, err = pretty.WriteTo(&stdout)
	return err
}

type tiersInvalidateCmd struct {
	who
	All bool
	adminPort
}

// Run tells the service which keys or subjects have changed.
func (t tiersInvalidateCmd) Run(c *cli) error {
	change := make(map[string]any)
	switch {
	case t.Digest != "" && t.ID != "", t.All && t.Digest+t.ID != "":
		return usage("--digest, --id and --all: give one of the three")
	case t.Digest != "":
		change["digest"] = t.Digest
	case t.ID != "":
		change["subject"] = t.ID
	case t.All:
		change["all"] = true
	default:
		return usage("name a key by --digest, a subject by --id, or --all")
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if _, err := t.ask(c, http.MethodPost, "/v1/tiers/invalidate", body); err != nil {
		return err
	}
	message := "The service asks its source of tiers again at the next request of each key and subject."
	const unchecked = " This command does not check whether the source has the"
	switch {
	case t.Digest != "":
		message = fmt.Sprintf("The service asks its source of tiers again at the next request of the key with the digest %q.%s key.", t.Digest, unchecked)
	case t.ID != "":
		message = fmt.Sprintf("The service asks its source of tiers again at the next request of the subject %q.%s subject.", t.ID, unchecked)
	}
	_, err = fmt.Fprintln(&stdout, message)
	return err
}

type tiersSchemaCmd struct{}

// Run prints the SQL.
func (tiersSchemaCmd) Run() error {
	_, err := fmt.Fprint(&stdout, pgsource.Schema())
	return err
}

// ask calls the admin port and returns its answer.
func (a adminPort) ask(c *cli, method, path string, body []byte) (answer json.RawMessage, err error) {
	ports := adminPorts{TokenFile: a.TokenFile, Timeout: a.Timeout}
	if a.Admin != "" {
		ports.Admin = []string{a.Admin}
	}
	caller, err := ports.caller(c)
	if err != nil {
		return nil, err
	}
	return answer, caller.call(context.Background(), caller.instances[0], method, path, body, &answer)
}

// adminURL returns the URL of an admin port from its URL or from the address that it listens
// on.
func adminURL(address string) (string, error) {
	if u, err := url.Parse(address); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return strings.TrimSuffix(address, "/"), nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.Contains(host, "/") || strings.Contains(port, "/") {
		return "", fmt.Errorf("%q is neither host:port nor a URL such as http://127.0.0.1:6070", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}
