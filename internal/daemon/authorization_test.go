package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/extauthz"
)

// TestChoicesOfAuthz sets every kind of a credential and every source of the address.
func TestChoicesOfAuthz(t *testing.T) {
	var addresses []extauthz.AddressFrom
	for _, address := range []string{settings.AddressPeer, settings.AddressExternal, settings.AddressForwardedFor} {
		s, _, err := settings.Parse("", nil, []string{
			"SLIDEGATE_AUTHZ_ADDRESS=" + address,
			"SLIDEGATE_AUTHZ_CREDENTIALS=header:a,bearer,basic,apikey,query:b,cookie:c",
		})
		if err != nil {
			t.Fatal(err)
		}
		o := authorizationOptions(s.Authz, extauthz.Options{})
		addresses = append(addresses, o.Address.From)
		want := []extauthz.Credential{
			{Kind: extauthz.Header, Name: "a"},
			{Kind: extauthz.Bearer},
			{Kind: extauthz.Basic},
			{Kind: extauthz.APIKey},
			{Kind: extauthz.Query, Name: "b"},
			{Kind: extauthz.Cookie, Name: "c"},
		}
		if diff := cmp.Diff(want, o.Credentials); diff != "" {
			t.Errorf("credentials (-want +got):\n%s", diff)
		}
	}
	want := []extauthz.AddressFrom{extauthz.Peer, extauthz.ExternalAddress, extauthz.ForwardedFor}
	if diff := cmp.Diff(want, addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
