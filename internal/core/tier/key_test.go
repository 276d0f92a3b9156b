package tier

import (
	"encoding/base64"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/core/tier/apikey"
)

func basic(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }

// TestOneCredentialHasOneKey spells credentials in all ways.
func TestOneCredentialHasOneKey(t *testing.T) {
	passwords := NewSecrets(nil, nil)
	passwords.BasicHasKey()
	for _, tt := range []struct {
		want   string
		values []string
	}{
		{"K", []string{
			"K", " K", "K ", "\tK", "K\t", " \t K \t ",
			"Bearer K", "bearer K", "BEARER K", "bEaReR K", "Bearer  K", "Bearer\tK", "Bearer \t K", " Bearer K ", "\tBearer K\t",
			"ApiKey K", "apikey\tK", "APIKEY   K  ",
			// What an application may read of a field with more in it, or of two fields
			// that were joined.
			"Bearer K more", "Bearer K\tmore", "Bearer K,Bearer L", "Bearer K, Bearer L", "ApiKey K,more",
			basic("user:K"), strings.Replace(basic("user:K"), "Basic ", "basic\t ", 1), basic("other:K"), basic("K:"),
		}},
		{"", []string{"", " ", "\t \t", "Bearer ,K"}},
		{"Bearer", []string{"Bearer", " Bearer ", "Bearer\t"}},
		// A key may contain a comma.
		{"K,L", []string{"K,L", " K,L "}},
		{"token K", []string{"Token K", "token K", "TOKEN\t\tK ", " tOKEN  K"}},
		{"token K L", []string{"Token K L", "token  K L"}},
		{`digest username="u", realm="r"`, []string{`Digest username="u", realm="r"`, `DIGEST  username="u", realm="r"`}},
		// The case of a key matters.
		{"k", []string{"k", "Bearer k"}},
		// These begin with no scheme.
		{"SID=Abc; b=c", []string{"SID=Abc; b=c", " SID=Abc; b=c\t"}},
		{"basic =", []string{
			"Basic %%%", "basic K", "Basic " + base64.StdEncoding.EncodeToString([]byte("no colon")), basic("u:K") + " more", basic("u:K") + "," + basic("u:L"),
			"Basic !" + base64.StdEncoding.EncodeToString([]byte("u:K")), basic("a:b c"), basic(":"), basic("u:\xff"), basic("u:" + strings.Repeat("x", apikey.MaxKey+1)),
		}},
		// Other white space is a part of the key.
		{"K\u00a0", []string{"K\u00a0", "K\u00a0 ", "Bearer K\u00a0"}},
		{"\u0085K", []string{"\u0085K"}},
		{"\vK", []string{"\vK"}},
		{"K\xa0", []string{"K\xa0"}},
	} {
		for _, value := range tt.values {
			if got := passwords.Key(value); got != tt.want {
				t.Errorf("the key of %q: got %q, want %q", value, got, tt.want)
			}
			if got, want := passwords.Digest(value), passwords.Digest(tt.want); got != want {
				t.Errorf("%q has not the digest of %q", value, tt.want)
			}
			if got, want := passwords.Fingerprint(value), passwords.Fingerprint(tt.want); got != want {
				t.Errorf("%q has not the fingerprint of %q", value, tt.want)
			}
		}
	}
}

// TestPasswordsAreNoKeys proves that users with the same password have different keys,
// unless BasicHasKey was called.
func TestPasswordsAreNoKeys(t *testing.T) {
	s := NewSecrets(nil, nil)
	alice := s.Key(basic("alice:password"))
	for _, value := range []string{basic("bob:password"), "Bearer password", "password", basic("alice:"), "alice", "alice:password"} {
		if s.Key(value) == alice {
			t.Errorf("%q has the key of alice", value)
		}
	}
	plain := strings.TrimPrefix(basic("alice:password"), "Basic ")
	for _, value := range []string{"basic " + plain, "BASIC\t" + plain + " ", alice} {
		if got := s.Key(value); got != alice {
			t.Errorf("the key of %q: got %q, want %q", value, got, alice)
		}
	}
	// Decoders ignore the last bits of the last letter.
	if a, b := s.Key("Basic YTo="), s.Key("Basic YTp="); a != b {
		t.Errorf("got %q and %q for one pair", a, b)
	}
	for _, value := range []string{"Basic %%%", "Basic YTo", "Basic YTo==", "Basic =YTo=", "Basic Y", "Basic YTo= x"} {
		if got := s.Key(value); got != "basic =" {
			t.Errorf("the key of %q: got %q, want that of every malformed pair", value, got)
		}
	}
}

func TestCutScheme(t *testing.T) {
	for _, tt := range []struct{ value, scheme, credential string }{
		{"", "", ""},
		{" \t", "", ""},
		{"K", "K", ""},
		{" Bearer \t K ", "Bearer", "K"},
		{"Digest a=b, c=d", "Digest", "a=b, c=d"},
		{"a\tb c", "a", "b c"},
		{"a b\tc", "a", "b\tc"},
	} {
		if scheme, credential := apikey.CutScheme(tt.value); scheme != tt.scheme || credential != tt.credential {
			t.Errorf("%q: got %q and %q, want %q and %q", tt.value, scheme, credential, tt.scheme, tt.credential)
		}
	}
}

// FuzzKey proves that all spellings of a value have its key, and that the key of a key is
// the key.
func FuzzKey(f *testing.F) {
	for _, value := range []string{"K", "Bearer K", "apikey K,L", basic("u:K"), "Basic %", "Token K L", "basic =", "bearer", "\xa0 \xff"} {
		f.Add(value)
	}
	plain, passwords := NewSecrets(nil, nil), NewSecrets(nil, nil)
	passwords.BasicHasKey()
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range []*Secrets{plain, passwords} {
			key := s.Key(value)
			scheme, credential := apikey.CutScheme(value)
			spellings := []string{key, " " + value, value + "\t", "\t " + value + " \t"}
			if credential != "" && httpguts.ValidHeaderFieldName(scheme) {
				spellings = append(spellings, string(appendLower(nil, scheme))+" \t "+credential)
			}
			for _, spelling := range spellings {
				if got := s.Key(spelling); got != key {
					t.Errorf("the key of %q is %q, that of %q is %q", value, key, spelling, got)
				}
			}
			if credential == "" && key != value && len(key) != len(scheme) {
				t.Errorf("the key of the word %q is %q", value, key)
			}
		}
	})
}

// TestKeyAllocatesNothing bounds the memory of Key, which every request calls.
func TestKeyAllocatesNothing(t *testing.T) {
	s := NewSecrets(nil, nil)
	for _, value := range []string{"sk-0123456789", " sk-0123456789 ", "Bearer sk-0123456789", "apikey\tsk-0123456789 more"} {
		if n := testing.AllocsPerRun(100, func() { s.Key(value) }); n != 0 {
			t.Errorf("%q: got %v allocations, want none", value, n)
		}
	}
}
