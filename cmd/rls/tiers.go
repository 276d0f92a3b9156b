package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/tier/pgsource"
)

// tiersCmd is what support does about keys and subjects.
type tiersCmd struct {
	Lookup     tiersLookupCmd     `cmd:"" help:"Print what the running service holds, and what its source of tiers says, of a key or a subject."`
	Invalidate tiersInvalidateCmd `cmd:"" help:"Have the running service ask its source of tiers anew."`
	Schema     tiersSchemaCmd     `cmd:"" help:"Print the SQL that makes the tables of tiers.source postgres. It may be run again."`
}

// who names a key or a subject.
type who struct {
	Digest string `help:"Digest of an API key, as rls digest prints it." placeholder:"HEX" xor:"who"`
	ID     string `help:"Id of a subject." placeholder:"ID" xor:"who"`
}

// adminPort is where the running service is asked.
type adminPort struct {
	Admin   string        `help:"Where the admin port of the service is; default: admin.address of the settings." placeholder:"URL"`
	Timeout time.Duration `default:"10s" help:"How long to wait for the answer."`
}

type tiersLookupCmd struct {
	who
	adminPort
}

// Run prints the answer as JSON.
func (t tiersLookupCmd) Run(c *cli) error {
	query := url.Values{}
	switch {
	case t.Digest != "":
		query.Set("digest", t.Digest)
	case t.ID != "":
		query.Set("id", t.ID)
	default:
		return fmt.Errorf("name a key by --digest or a subject by --id")
	}
	body, err := t.ask(c, http.MethodGet, "/v1/tiers/lookup?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON; is it the admin port? %w", err)
	}
	_, err = pretty.WriteTo(os.Stdout)
	return err
}

type tiersInvalidateCmd struct {
	who
	All bool `help:"Everything." xor:"who"`
	adminPort
}

// Run sends what has changed.
func (t tiersInvalidateCmd) Run(c *cli) error {
	change := make(map[string]any)
	switch {
	case t.Digest != "":
		change["digest"] = t.Digest
	case t.ID != "":
		change["subject"] = t.ID
	case t.All:
		change["all"] = true
	default:
		return fmt.Errorf("name a key by --digest, a subject by --id, or --all")
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = t.ask(c, http.MethodPost, "/v1/tiers/invalidate", body)
	return err
}

type tiersSchemaCmd struct{}

// Run prints the schema.
func (tiersSchemaCmd) Run() error {
	_, err := fmt.Print(pgsource.Schema())
	return err
}

// maxAdminAnswer is far above what a subject can have.
const maxAdminAnswer = 1 << 20

// ask asks the admin port.
func (a adminPort) ask(c *cli, method, path string, body []byte) ([]byte, error) {
	base := strings.TrimSuffix(a.Admin, "/")
	if base == "" {
		s, err := config.LoadSettings(c.Config, os.Environ())
		if err != nil {
			return nil, err
		}
		if base, err = adminURL(s.Admin.Address); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the admin port: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // it has been read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAdminAnswer))
	if err != nil {
		return nil, fmt.Errorf("the admin port: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("the admin port says %s: %s", response.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}

// adminURL returns where a service that listens on an address is asked from here.
func adminURL(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("admin.address is off: name the admin port of a service by --admin")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}
