package extauthz

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/apikey"
	"github.com/slidegate/slidegate/internal/edge/answer"
)

func basic(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestFind(t *testing.T) {
	all := everyCredential()
	long := strings.Repeat("k", apikey.MaxKey)
	for _, tt := range []struct {
		name   string
		path   string
		fields []string
		key    string
		want   presence
	}{
		{"none", "/", nil, "", absent},

		{"header", "/", []string{"x-api-key: k"}, "k", present},
		{"header, spaces around it", "/", []string{"x-api-key:  \tk "}, "k", present},
		{"header, empty", "/", []string{"x-api-key: "}, "", malformed},
		{"header, a space inside", "/", []string{"x-api-key: a b"}, "", malformed},
		{"header, a comma inside", "/", []string{"x-api-key: a,b"}, "", malformed},
		{"header, twice", "/", []string{"x-api-key: a", "x-api-key: b"}, "", malformed},
		{"header, twice the same", "/", []string{"x-api-key: a", "x-api-key: a"}, "", malformed},
		{"header, once empty", "/", []string{"x-api-key: ", "x-api-key: a"}, "", malformed},
		{"header, not ASCII", "/", []string{"x-api-key: ké"}, "", malformed},
		{"header, not UTF-8", "/", []string{"x-api-key: k\xff"}, "", malformed},
		{"header, NUL", "/", []string{"x-api-key: k\x00"}, "", malformed},
		{"header, the longest", "/", []string{"x-api-key: " + long}, long, present},
		{"header, too long", "/", []string{"x-api-key: k" + long}, "", malformed},
		{"header before others", "/?api_key=q", []string{"authorization: Bearer b", "x-api-key: k", "cookie: key=c"}, "k", present},
		{"header, malformed, and a good one", "/", []string{"x-api-key: a b", "authorization: Bearer b"}, "", malformed},

		{"bearer", "/", []string{"authorization: Bearer k"}, "k", present},
		{"bearer, in any case, more spaces", "/", []string{"authorization:   bEARER \t  k "}, "k", present},
		{"bearer, empty", "/", []string{"authorization: Bearer"}, "", malformed},
		{"bearer, two words", "/", []string{"authorization: Bearer a b"}, "", malformed},
		{"bearer, twice", "/", []string{"authorization: Bearer a", "authorization: Bearer b"}, "", malformed},
		{"bearer behind another scheme", "/", []string{"authorization: Digest a", "authorization: Bearer b"}, "", malformed},
		{"apikey", "/", []string{"authorization: ApiKey k"}, "k", present},
		{"another scheme", "/", []string{"authorization: Digest username=\"x\", realm=\"y\""}, "", absent},
		{"another scheme and a parameter", "/?api_key=k", []string{"authorization: AWS4-HMAC-SHA256 x"}, "k", present},
		{"empty authorization", "/", []string{"authorization: "}, "", absent},

		{"basic, password", "/", []string{"authorization: Basic " + basic("user:k")}, "k", present},
		{"basic, user alone", "/", []string{"authorization: basic " + basic("k:")}, "k", present},
		{"basic, colons in the password", "/", []string{"authorization: Basic " + basic("user:a:b")}, "a:b", present},
		{"basic, a comma in the password", "/", []string{"authorization: Basic " + basic("user:a,b")}, "a,b", present},
		{"basic, the longest key", "/", []string{"authorization: Basic " + basic("user:"+long)}, long, present},
		{"basic, too long", "/", []string{"authorization: Basic " + basic("user:k"+long)}, "", malformed},
		{"basic, too long a user", "/", []string{"authorization: Basic " + basic(long+long+":k")}, "", malformed},
		{"basic, no colon", "/", []string{"authorization: Basic " + basic("k")}, "", malformed},
		{"basic, nothing", "/", []string{"authorization: Basic " + basic(":")}, "", malformed},
		{"basic, a line break", "/", []string{"authorization: Basic " + basic("user:a\r\nb")}, "", malformed},
		{"basic, not base64", "/", []string{"authorization: Basic %%%"}, "", malformed},
		{"basic, not UTF-8", "/", []string{"authorization: Basic " + basic("user:\xff")}, "", malformed},

		{"parameter", "/a?b=1&api_key=k&c", nil, "k", present},
		{"parameter, escaped", "/?api_key=a%2Bb%26", nil, "a+b&", present},
		{"parameter, a plus is one", "/?api_key=a+b", nil, "a+b", present},
		{"parameter, a comma", "/?api_key=a,b", nil, "a,b", present},
		{"parameter, the name escaped", "/?api%5fkey=k", nil, "k", present},
		{"parameter, twice", "/?api_key=a&api_key=b", nil, "", malformed},
		{"parameter, twice, once escaped", "/?api_key=a&%61pi_key=b", nil, "", malformed},
		{"parameter, empty", "/?api_key=", nil, "", malformed},
		{"parameter, no value", "/?api_key", nil, "", malformed},
		{"parameter, bad escape", "/?api_key=%zz", nil, "", malformed},
		{"parameter, an escaped NUL", "/?api_key=a%00", nil, "", malformed},
		{"parameter, name in another case", "/?API_KEY=k", nil, "", malformed},
		{"parameter, name in another case beside it", "/?api_key=a&Api_Key=b", nil, "", malformed},
		{"parameter, a dot for the underscore", "/?api_key=a&api.key=b", nil, "", malformed},
		{"parameter, a space for the underscore", "/?api_key=a&api%20key=b", nil, "", malformed},
		{"parameter, a plus for the underscore", "/?api_key=a&api+key=b", nil, "", malformed},
		{"parameter, a bracket for the underscore", "/?api_key=a&api[key=b", nil, "", malformed},
		{"parameter, all of these", "/?api_key=a&%20API.Key[0]=b", nil, "", malformed},
		{"parameter, a hyphen for the underscore", "/?api-key=b&api_key=a", nil, "a", present},
		{"parameter, a name with a bad escape", "/?api_key%=k", nil, "", absent},
		{"parameter in a fragment alone", "/a#?api_key=k", nil, "", absent},
		{"parameter, another behind a semicolon", "/?x=1;api_key=a&api_key=b", nil, "", malformed},
		{"parameter, another behind its own", "/?api_key=a;api_key=b", nil, "", malformed},
		{"parameter, ended by a semicolon", "/?api_key;x=a&api_key=b", nil, "", malformed},
		{"parameter behind a semicolon alone", "/?x=1;api_key=a", nil, "", malformed},
		{"parameter, a semicolon inside", "/?api_key=a;b", nil, "a;b", present},
		{"parameter, a space before the name", "/?api_key=a&%20api_key=b", nil, "", malformed},
		{"parameter, a plus before the name", "/?+api_key=b&api_key=a", nil, "", malformed},
		{"parameter, a tab behind the name", "/?api_key%09=b&api_key=a", nil, "", malformed},
		{"parameter, NUL behind the name", "/?api_key%00x=b&api_key=a", nil, "", malformed},
		{"parameter, a list", "/?api_key[]=b&api_key=a", nil, "", malformed},
		{"parameter, an escaped list", "/?api_key%5B0%5D=b&api_key=a", nil, "", malformed},
		{"parameter, longer names", "/?api_keys=b&my_api_key=c&api_key=a", nil, "a", present},
		{"parameter in a fragment", "/?a=b#&api_key=k", nil, "", absent},
		{"parameter of the path", "/api_key=k", nil, "", absent},

		{"cookie", "/", []string{"cookie: a=b; key=k; c"}, "k", present},
		{"cookie, quoted", "/", []string{`cookie: key="k"`}, "k", present},
		{"cookie, an equals sign", "/", []string{"cookie: key=k=="}, "k==", present},
		{"cookie, twice", "/", []string{"cookie: key=a; key=b"}, "", malformed},
		{"cookie, twice in two lines", "/", []string{"cookie: key=a", "cookie: key=b"}, "", malformed},
		{"cookie, empty", "/", []string{"cookie: key="}, "", malformed},
		{"cookie, a comma", "/", []string{"cookie: key=a,b"}, "", malformed},
		{"cookie, name in another case", "/", []string{"cookie: KEY=k"}, "", malformed},
		{"cookie, name in another case beside it", "/", []string{"cookie: key=a; Key=b"}, "", malformed},
		{"cookie, name in another case behind a comma", "/", []string{"cookie: a=b,KEY=k"}, "", malformed},
		{"cookie, quoted, an escape", "/", []string{`cookie: key="\153"`}, "", malformed},
		{"cookie, a backslash", "/", []string{`cookie: key=a\b`}, `a\b`, present},
		{"cookie, another one ends like it", "/", []string{"cookie: xkey=k; x=key=k"}, "", absent},
	} {
		raw := new(request)
		read(t, raw, askRaw(tt.path, nil, tt.fields...))
		joined := raw
		if utf8.ValidString(strings.Join(tt.fields, "")) { // Envoy's map is always UTF-8
			joined = new(request)
			read(t, joined, ask(tt.path, nil, tt.fields...))
		}
		overHTTP := &request{path: tt.path, fields: fields{http: make(http.Header)}}
		for _, f := range tt.fields {
			name, value, _ := strings.Cut(f, ": ")
			overHTTP.fields.http.Add(name, value)
		}
		for form, r := range map[string]*request{"joined": joined, "raw": raw, "http": overHTTP} {
			if key, p, _ := find(r, all); key != tt.key || p != tt.want {
				t.Errorf("%s, %s: %q, %v, want %q, %v", tt.name, form, key, p, tt.key, tt.want)
			}
		}
	}
}

// TestJoinedCookies refuses two lines that Envoy has joined: some readers find a key only in
// the first line, and some in the second.
func TestJoinedCookies(t *testing.T) {
	for _, cookie := range []string{"a=b,key=k", "a=b, key=k", "key=a; b=c,key=k", "key=a,key=b"} {
		r := new(request)
		read(t, r, ask("/", nil, "cookie: "+cookie))
		if key, p, _ := find(r, []settings.Credential{{Kind: settings.CredentialCookie, Name: "key"}}); p != malformed {
			t.Errorf("%q: %q, %v, want it refused", cookie, key, p)
		}
	}
}

// TestOrder proves that the first configured place with a credential counts, and that other
// places do not.
func TestOrder(t *testing.T) {
	in := ask("/?api_key=q", nil, "x-api-key: h", "authorization: Bearer b", "cookie: key=c")
	for want, credentials := range map[string][]settings.Credential{
		"h": {{Kind: settings.CredentialHeader, Name: "x-api-key"}, {Kind: settings.CredentialBearer}},
		"b": {{Kind: settings.CredentialBasic}, {Kind: settings.CredentialBearer}, {Kind: settings.CredentialHeader, Name: "x-api-key"}},
		"q": {{Kind: settings.CredentialHeader, Name: "x-other"}, {Kind: settings.CredentialQuery, Name: "api_key"}, {Kind: settings.CredentialCookie, Name: "key"}},
		"c": {{Kind: settings.CredentialQuery, Name: "key"}, {Kind: settings.CredentialCookie, Name: "key"}},
		"":  {{Kind: settings.CredentialBasic}, {Kind: settings.CredentialHeader, Name: "x-other"}},
	} {
		r := new(request)
		read(t, r, in)
		if key, _, _ := find(r, credentials); key != want {
			t.Errorf("%v: %q, want %q", credentials, key, want)
		}
	}
}

func TestRemoval(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remove bool
		path   string
		fields []string
		want   upstream
	}{
		{"a header stays by default", false, "/", []string{"x-api-key: acme-key"}, upstream{}},
		{"a parameter goes in any case", false, "/?a=b&api_key=acme-key", nil, upstream{removeParameters: []string{"api_key"}}},
		{"as the path writes it", false, "/?%61pi_key=acme-key", nil, upstream{removeParameters: []string{"%61pi_key"}}},
		{"also where another credential counted", false, "/?a=b&api%5Fkey=y", []string{"x-api-key: acme-key"}, upstream{removeParameters: []string{"api%5Fkey"}}},
		{"a header", true, "/", []string{"x-api-key: acme-key", "authorization: Digest x"}, upstream{remove: []string{"x-api-key"}}},
		{"a scheme", true, "/", []string{"authorization: Bearer acme-key"}, upstream{remove: []string{"authorization"}}},
		{"every one that is there", true, "/", []string{"x-api-key: acme-key", "authorization: Basic " + basic("u:z"), "cookie: key=z"}, upstream{remove: []string{"x-api-key", "authorization", "cookie"}}},
		{"a cookie among others", true, "/", []string{"cookie: a=1;key=acme-key;  b=2"}, upstream{headers: []answer.Header{{Name: "cookie", Value: "a=1; b=2"}}}},
		{"a cookie alone", true, "/", []string{"cookie: key=acme-key"}, upstream{remove: []string{"cookie"}}},
		{"other cookies", true, "/", []string{"x-api-key: acme-key", "cookie: a=1"}, upstream{remove: []string{"x-api-key"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, nil, func(o *Options) {
				o.SubjectHeader, o.TierHeader, o.LabelHeaders, o.RemoveCredential = "", "", nil, tt.remove
			})
			for form, in := range map[string]*authv3.CheckRequest{"joined": ask(tt.path, nil, tt.fields...), "raw": askRaw(tt.path, nil, tt.fields...)} {
				out := s.check(t, in)
				ok := out.GetOkResponse()
				if out.GetStatus().GetCode() != 0 || ok == nil {
					t.Fatalf("%s: answer = %v, want OK", form, out)
				}
				var set []answer.Header
				for _, h := range ok.GetHeaders() {
					set = append(set, answer.Header{Name: h.GetHeader().GetKey(), Value: h.GetHeader().GetValue()})
				}
				if !slices.Equal(set, tt.want.headers) || !slices.Equal(ok.GetHeadersToRemove(), tt.want.remove) || !slices.Equal(ok.GetQueryParametersToRemove(), tt.want.removeParameters) {
					t.Errorf("%s: %v, want %+v", form, ok, tt.want)
				}
			}
		})
	}
}

// FuzzCredential sends arbitrary credentials. A key that is found is valid. Both forms of a
// request have the same key. A key in a parameter or cookie is removed.
func FuzzCredential(f *testing.F) {
	secrets := tier.NewSecrets(nil, nil)
	secrets.BasicHasKey()
	f.Add("/?api_key=k", "k", "Bearer k", "key=k; a=b")
	f.Add("/?api%5Fkey=k&api_key=%41", "a,b", "Basic "+basic("u:p"), "a=b,key=k")
	f.Add("/?x=1;api_key=k&+api_key=l&api_key[]=m", "", "", "")
	f.Add("/a#?", "", "apikey \xff", `key="k"; key`)
	f.Add("/", "", "", "a=b; keY")
	f.Fuzz(func(t *testing.T, path, header, authorization, cookie string) {
		path = strings.ToValidUTF8(path, "!") // as Envoy does
		credentials := defaults().Credentials
		credentials[0].Name = "x-api-key"
		fields := []string{"x-api-key: " + header, "authorization: " + authorization, "cookie: " + cookie}
		for first := range fields {
			r, joined := new(request), new(request)
			read(t, r, askRaw(path, nil, fields[first:]...))
			key, p, _ := find(r, credentials)
			if utf8.ValidString(header + "\x00" + authorization + "\x00" + cookie) {
				read(t, joined, ask(path, nil, fields[first:]...))
				if joinedKey, joinedP, _ := find(joined, credentials); joinedKey != key || joinedP != p {
					t.Errorf("raw %q, %v, joined %q, %v", key, p, joinedKey, joinedP)
				}
			}
			if (p == present) != apikey.ValidKey(key) || p != present && key != "" {
				t.Errorf("key %q, %v", key, p)
			}
			// A descriptor from the same field has the same key.
			for i, value := range []string{header, authorization, authorization, authorization} {
				if key, p := credential(credentials[i]).find(r); p == present && apikey.ValidKey(key) && secrets.Key(value) != key {
					t.Errorf("%q holds the key %q here, and %q in a descriptor", value, key, secrets.Key(value))
				}
			}
			var u upstream
			u.removeCredentials(r, credentials, true)
			var left []string // as Envoy removes them
			for one := range strings.SplitSeq(r.query(), "&") {
				if name, _, _ := strings.Cut(one, "="); !slices.Contains(u.removeParameters, name) {
					left = append(left, one)
				}
			}
			again := &request{path: "/?" + strings.Join(left, "&")}
			if _, p := (credential{Kind: settings.CredentialQuery, Name: "api_key"}).find(again); p != absent || len(u.removeParameters) > 0 != (len(left) < strings.Count(r.query(), "&")+1) {
				t.Errorf("%q of %q are removed, %q is left", u.removeParameters, path, left)
			}
			for _, h := range u.headers {
				again := &request{fields: fieldsOf("cookie", h.Value)}
				if _, p := (credential{Kind: settings.CredentialCookie, Name: "key"}).find(again); h.Name != "cookie" || p != absent || !validText(h.Value) {
					t.Errorf("%q: %q is what is left", h.Name, h.Value)
				}
			}
		}
	})
}

func fieldsOf(name, value string) fields { return fields{lines: []text{{name, value}}} }
