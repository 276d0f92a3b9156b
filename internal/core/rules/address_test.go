package rules_test

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// TestAddressesHaveOneSpelling compares what rules and requests make of an address.
func TestAddressesHaveOneSpelling(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"remote_address", "192.0.2.7", "192.0.2.7"},
		{"remote_address", "::ffff:192.0.2.7", "192.0.2.7"},
		{"remote_address", "::FFFF:C000:0207", "192.0.2.7"},
		{"remote_address", "2001:db8::1", "2001:db8::1"},
		{"remote_address", " 2001:DB8::1\t", "2001:db8::1"},
		{"remote_address", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"},
		{"remote_address", "fe80::A%eth0", "fe80::a"},
		{"remote_address", "[2001:DB8::1]", "[2001:DB8::1]"}, // no address
		{"masked_remote_address", "2001:DB8::/32", "2001:db8::/32"},
		{"masked_remote_address", "2001:db8:0:0::/64", "2001:db8::/64"},
		{"masked_remote_address", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"masked_remote_address", "10.0.0.0/8", "10.0.0.0/8"},
		{"route", "2001:DB8::1", "2001:DB8::1"}, // no key of Envoy's addresses
	} {
		e := descriptors.Entry{Key: tt.key, Value: tt.value}
		if got := rules.Canonical(e); got != tt.want {
			t.Errorf("%s %q: a request has %q, want %q", tt.key, tt.value, got, tt.want)
		}
		if got := rules.CanonicalNode(descriptors.Node{Key: tt.key, Value: tt.value}); got != tt.want {
			t.Errorf("%s %q: a rule has %q, want %q", tt.key, tt.value, got, tt.want)
		}
		e.Value = tt.want
		if strings.HasPrefix(e.Value, "[") {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { rules.Canonical(e) }); n != 0 {
			t.Errorf("%s %q: %v allocations for the canonical form", tt.key, tt.want, n)
		}
	}
	if got := rules.CanonicalNode(descriptors.Node{Key: "remote_address", Value: "2001:DB8:*", Pattern: true}); got != "2001:db8:*" {
		t.Errorf("a wildcard is %q", got)
	}
}
