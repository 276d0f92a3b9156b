package extauthz

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
)

func TestAddress(t *testing.T) {
	forwarded := func(hops int) AddressRule { return AddressRule{From: ForwardedFor, Hops: hops} }
	external := AddressRule{From: ExternalAddress}
	for _, tt := range []struct {
		name   string
		rule   AddressRule
		peer   string
		fields []string
		want   string
	}{
		{"peer", AddressRule{}, "192.0.2.7", []string{"x-forwarded-for: 198.51.100.1"}, "192.0.2.7"},
		{"peer, IPv6", AddressRule{}, "2001:db8:1:2:3:4:5:6", nil, "2001:db8:1:2::"},
		{"peer, IPv4 in IPv6", AddressRule{}, "::ffff:192.0.2.7", nil, "192.0.2.7"},
		{"peer, a zone", AddressRule{}, "fe80::1%eth0", nil, "fe80::"},
		{"peer, a socket", AddressRule{}, "", nil, ""},
		{"external", external, "192.0.2.7", []string{"x-envoy-external-address: 198.51.100.1"}, "198.51.100.1"},
		{"external, not there", external, "192.0.2.7", nil, "192.0.2.7"},
		{"external, no address", external, "192.0.2.7", []string{"x-envoy-external-address: me"}, "192.0.2.7"},
		{"external, twice", external, "192.0.2.7", []string{"x-envoy-external-address: 198.51.100.1", "x-envoy-external-address: 198.51.100.2"}, "192.0.2.7"},
		{"forwarded, one hop", forwarded(1), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"forwarded, none said", forwarded(0), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"forwarded, two hops", forwarded(2), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "203.0.113.9"},
		{"forwarded, two lines", forwarded(2), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9", "x-forwarded-for: 198.51.100.1"}, "203.0.113.9"},
		{"forwarded, too few", forwarded(3), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, 198.51.100.1"}, "192.0.2.7"},
		{"forwarded, no address", forwarded(1), "192.0.2.7", []string{"x-forwarded-for: 203.0.113.9, unknown"}, "192.0.2.7"},
		{"forwarded, a port", forwarded(1), "", []string{"x-forwarded-for: 198.51.100.1:80"}, "198.51.100.1"},
		{"forwarded, IPv6 and a port", forwarded(1), "", []string{"x-forwarded-for: [2001:db8::1]:80"}, "2001:db8::"},
		{"forwarded, a socket", forwarded(1), "", []string{"x-forwarded-for: 2001:db8::1"}, "2001:db8::"},
	} {
		for form, in := range map[string]*authv3.CheckRequest{"joined": ask("/", nil, tt.fields...), "raw": askRaw("/", nil, tt.fields...)} {
			in.Attributes.Source.Address.GetSocketAddress().Address = tt.peer
			s := newService(t, nil, func(o *Options) { o.Address = tt.rule })
			c := new(call)
			c.in.read(in)
			if got := s.addressText(c, ""); got != tt.want {
				t.Errorf("%s, %s: %q, want %q", tt.name, form, got, tt.want)
			}
		}
	}
}

// TestUnixSocket: who comes over one has no address, but a subject in metadata.
func TestUnixSocket(t *testing.T) {
	in := ask("/", map[string]string{"anonymous": "true", "domain": "edge"})
	in.Attributes.Source.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}
	out := newService(t, nil, nil).check(t, in)
	if got := out.GetDynamicMetadata().GetFields()["subject"].GetStringValue(); out.GetStatus().GetCode() != 0 || got != "ip:unknown" {
		t.Errorf("subject = %q in %v, want ip:unknown", got, out)
	}
}

func TestWholeIPv6(t *testing.T) {
	s := newService(t, nil, func(o *Options) { o.IPv6Prefix = 0 })
	c := &call{in: request{peer: "2001:db8::1:2"}}
	if got := s.addressText(c, ""); got != "2001:db8::1:2" {
		t.Errorf("without a prefix: %q, want it whole", got)
	}
}
