package tier

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slidegate/slidegate/internal/core/tier/apikey"
)

func TestDigest(t *testing.T) {
	plain := NewSecrets([]string{"api_key"}, nil)
	sum := sha256.Sum256([]byte("demo-free"))
	if got, want := plain.Digest("demo-free"), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("without a secret: Digest = %s, want plain SHA-256 %s", got, want)
	}
	keyed := NewSecrets([]string{"api_key"}, []byte("pepper-pepper-pepper"))
	mac := hmac.New(sha256.New, []byte("pepper-pepper-pepper"))
	mac.Write([]byte("demo-free"))
	for range 2 { // the second time with a pooled hash
		if got, want := keyed.Digest("demo-free"), hex.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("with a secret: Digest = %s, want HMAC-SHA-256 %s", got, want)
		}
	}
	if got := plain.Value("route", "search"); got != "search" {
		t.Errorf("Value of an entry that is no secret = %q, want it unchanged", got)
	}
	if got := plain.Value("api_key", "demo-free"); got != plain.Digest("demo-free") {
		t.Errorf("Value of a secret = %q, want its digest", got)
	}
}

// TestCaseOfKeys proves that the case of a key does not matter, because names of headers
// have any case.
func TestCaseOfKeys(t *testing.T) {
	long := strings.Repeat("X-Long-", 20)
	s := NewSecrets([]string{"api_key", "X-API-Key", long, "schlüssel", "azz", "a{b", "a`b"}, nil)
	for _, c := range []struct {
		key  string
		want bool
	}{
		{"api_key", true},
		{"API_KEY", true},
		{"Api_Key", true},
		{"x-api-key", true},
		{"X-API-KEY", true},
		{strings.ToLower(long), true},
		{strings.ToUpper(long), true},
		{"SCHLüSSEL", true},
		// Letters beyond ASCII count as they are, and so do ASCII's neighbours of
		// letters: @ and [ stand before A and behind Z, ` and { before a and behind z.
		{"schlÜssel", false},
		{"api_\u212aey", false},
		{"AzZ", true},
		{"a[b", false},
		{"a@b", false},
		{"A{B", true},
		{"", false},
		{"api_keys", false},
		{"API", false},
	} {
		if got := s.Is(c.key); got != c.want {
			t.Errorf("Is(%q) = %v, want %v", c.key, got, c.want)
		}
		if got, want := s.Value(c.key, "v") == s.Digest("v"), c.want; got != want {
			t.Errorf("Value(%q, v) is a digest: %v, want %v", c.key, got, want)
		}
	}
	for _, key := range []string{"api_key", "route", "Api_Key", "Route"} {
		if n := testing.AllocsPerRun(100, func() { s.Is(key) }); n != 0 {
			t.Errorf("Is(%q) allocates %v times", key, n)
		}
	}
}

// TestDigestKeepsNothing proves that the memory of a digest keeps nothing of its key.
func TestDigestKeepsNothing(t *testing.T) {
	var d digester
	d.use(nil)
	for _, key := range []string{"a-key-of-a-customer", strings.Repeat("long-", 30), strings.Repeat("x", maxKeptKey+1)} {
		if got, want := d.digest(key), sha256.Sum256([]byte(key)); string(got[:]) != hex.EncodeToString(want[:]) {
			t.Errorf("digest of %q = %s, want that of SHA-256", key, got)
		}
		h := d.hashes.Get().(*hasher)
		if bytes.ContainsFunc(h.key[:cap(h.key)], func(r rune) bool { return r != 0 }) || cap(h.key) > maxKeptKey || h.sum != ([sha256.Size]byte{}) {
			t.Errorf("of %q is kept: %q of %d, %x", key, h.key, cap(h.key), h.sum)
		}
		end := fmt.Sprintf("%d", []byte(key[len(key)-5:]))
		if state := fmt.Sprintf("%d", h.hash); strings.Contains(state, strings.Trim(end, "[]")) {
			t.Errorf("of %q the hash keeps %s", key, state)
		}
		d.hashes.Put(h)
	}
	if n := testing.AllocsPerRun(100, func() { d.digest("a-key-of-a-customer") }); n > 1 { // the race detector empties pools
		t.Errorf("a digest allocates %v times", n)
	}
}

func TestDigestConcurrently(t *testing.T) {
	s := NewSecrets(nil, []byte("pepper-pepper-pepper"))
	want := s.Digest("k")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got := s.Digest("k"); got != want {
					t.Errorf("Digest = %s, want %s", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestDirectory(t *testing.T) {
	d, err := NewDirectory([]string{"free", "starter"}, "free")
	if err != nil {
		t.Fatal(err)
	}
	d1, d2, d9 := strings.Repeat("1", DigestLen), strings.Repeat("2", DigestLen), strings.Repeat("9", DigestLen)
	if err := d.Add(Subject{ID: "acme", Tier: "starter"}, d1, d2); err != nil {
		t.Fatal(err)
	}
	if err := d.Add(Subject{ID: "hobby"}); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{d1, d2} {
		if s := d.ByDigest(digest); s == nil || s.ID != "acme" || s.Tier != "starter" {
			t.Errorf("ByDigest(%s) = %+v, want acme", digest, s)
		}
	}
	if s := d.ByID("hobby"); s == nil || s.Tier != "free" {
		t.Errorf("ByID(hobby) = %+v, want the default tier", s)
	}
	for _, digest := range []string{d9, d1[:DigestLen-1] + "2", "2" + d1[1:], d1[1:], d1 + "1", d1[1:] + "g", ""} {
		if s := d.ByDigest(digest); s != nil {
			t.Errorf("ByDigest(%s) = %+v, want no subject", digest, s)
		}
	}
	if d.ByID("unknown") != nil {
		t.Error("a subject that was not added is there")
	}
	if d.Subjects() != 2 {
		t.Errorf("Subjects = %d, want 2", d.Subjects())
	}
	for name, err := range map[string]error{
		`"ip:" stands for`:           d.Add(Subject{ID: "ip:192.0.2.7"}),
		"a subject needs an id":      d.Add(Subject{}),
		"a second subject":           d.Add(Subject{ID: "acme"}),
		`unknown tier "gold"`:        d.Add(Subject{ID: "x", Tier: "gold"}),
		`also belongs to "acme"`:     d.Add(Subject{ID: "y"}, d9, d1),
		"a digest is 64 hex digits":  d.Add(Subject{ID: "y"}, d9, "d1"),
		`default tier "gold" is not`: second(NewDirectory([]string{"free"}, "gold")),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error = %v, want %q", err, name)
		}
	}
	if d.ByID("y") != nil || d.ByDigest(d9) != nil {
		t.Error("a refused subject was added in part")
	}
}

func second(_ *Directory, err error) error { return err }

func TestLooksSecret(t *testing.T) {
	for key, want := range map[string]bool{
		"api_key": true, "X-Api-Key": true, "Authorization": true, "x-access-tokens": true, "my.password": true,
		"x-auth-token": true, "authentication": true, "x-amz-security-token": true, "XSRF-TOKEN": true, "cookie": true, "set_cookie": true,
		"session-id": true, "credentials": true, "x-hub-signature-256": true, "token": true,
		"": false, "route": false, "remote_address": false, "x-user-id": false, "tokens": false, "input_tokens": false, "key": false, "author": false,
	} {
		if got := apikey.LooksSecret(key); got != want {
			t.Errorf("LooksSecret(%q) = %v, want %v", key, got, want)
		}
	}
}
