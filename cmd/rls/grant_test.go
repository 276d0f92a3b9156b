package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/insight"
)

// TestGrant: what rls grant asks of the admin port, prints and returns.
func TestGrant(t *testing.T) {
	p := newPort(t)
	p.grants = []*grant.Grant{{
		ID: "0123456789ab", Rule: "per-key", Caller: grant.Caller{Subject: "acme"}, Amount: grant.Amount{Factor: 2},
		Until: time.Now().Add(time.Hour), By: "kim", Reason: "ticket 4711",
	}}
	usual := []string{"grant", "acme", "--rule", "per-key", "--factor", "2", "--until", "2h", "--reason", "ticket 4711", "--admin", p.address()}
	for name, tt := range map[string]struct {
		args []string
		code int
		out  string
	}{
		"a grant":                       {usual, 0, "0123456789ab  acme"},
		"a list":                        {[]string{"grant", "--list", "--admin", p.address()}, 0, "×2"},
		"revoked":                       {[]string{"grant", "--revoke", "0123456789ab", "--admin", p.address()}, 0, "0123456789ab"},
		"revoked before":                {[]string{"grant", "--revoke", "ffffffffffff", "--admin", p.address()}, 1, "no grant has this id"},
		"no rule":                       {[]string{"grant", "acme", "--factor", "2", "--until", "2h", "--reason", "x"}, 2, "--rule"},
		"no amount":                     {[]string{"grant", "acme", "--rule", "r", "--until", "2h", "--reason", "x"}, 2, "a factor or a limit"},
		"two amounts":                   {append(usual, "--limit", "5/minute"), 2, "not both"},
		"no time":                       {[]string{"grant", "acme", "--rule", "r", "--factor", "2", "--reason", "x"}, 2, "--until"},
		"no reason":                     {[]string{"grant", "acme", "--rule", "r", "--factor", "2", "--until", "2h"}, 2, "--reason"},
		"no customer":                   {[]string{"grant", "--rule", "r", "--factor", "2", "--until", "2h", "--reason", "x"}, 2, "name one of"},
		"a list of a customer":          {[]string{"grant", "acme", "--list"}, 2, "stand alone"},
		"an instance that is not there": {append(usual, "--admin", p.address()+",127.0.0.1:1"), 3, "from 1 of 2 instances; 127.0.0.1:1 did not answer"},
	} {
		code, out, errs := command(t, "", tt.args...)
		if code != tt.code || !strings.Contains(out+errs, tt.out) {
			t.Errorf("%s: exit %d\n%s%s\nwant %d and %q", name, code, out, errs, tt.code, tt.out)
		}
	}
	var sent insight.GrantRequest
	if err := json.Unmarshal(p.granted[0], &sent); err != nil {
		t.Fatal(err)
	}
	until, err := time.Parse(time.RFC3339, sent.Until)
	if left := time.Until(until); err != nil || left < 2*time.Hour-time.Minute || left > 2*time.Hour || sent.Subject != "acme" || sent.Factor != 2 {
		t.Errorf("sent %s", p.granted[0])
	}
}
