package extauthz

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/internal/core/tier"
)

// described returns the descriptors of a request as key=value,key=value. It writes the
// fingerprint of one of the texts as "#" and the text.
func described(t testing.TB, s *testService, c *call, texts ...string) []string {
	t.Helper()
	if err := s.addDescriptors(c, "edge"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range c.request.Descriptors {
		var entries []string
		for _, e := range d.Entries {
			for _, text := range texts {
				if e.Value == s.opts.Secrets.Fingerprint(text) {
					e.Value = "#" + text
				}
			}
			entries = append(entries, e.Key+"="+e.Value)
		}
		all = append(all, strings.Join(entries, ","))
	}
	return all
}

func TestTemplate(t *testing.T) {
	context := map[string]string{"route": "orders", "empty": ""}
	known := []string{"x-api-key: acme-key", "x-user: u1", "x-none: ", "cookie: a=b", "x-copy: my acme-key", "x-secret-word: w"}
	for _, tt := range []struct {
		name, template string
		fields         []string
		want           []string
	}{
		{"the default", defaultTemplate, known, []string{"api_key=#acme-key", "remote_address=192.0.2.7"}},
		{"the default, anonymous", defaultTemplate, nil, []string{"remote_address=192.0.2.7"}},
		{"shorthands", "subject,tier,remote_address,masked_remote_address,method,path,host,route", known, []string{
			"subject=acme,tier=pro,remote_address=192.0.2.7,masked_remote_address=192.0.2.7/32,method=GET,path=/a,host=api.example.com,route=orders",
		}},
		{"substitutions", "a=%KEY%,b=%SUBJECT%,c=%TIER%,d=%ADDRESS%,e=%MASKED_ADDRESS%,f=%METHOD%,g=%PATH%,h=%HOST%,i=%REQ(X-User)%,j=%CONTEXT(route)%,k=%LABEL(region)%", known, []string{
			"a=#acme-key,b=acme,c=pro,d=192.0.2.7,e=192.0.2.7/32,f=GET,g=/a,h=api.example.com,i=u1,j=orders,k=eu",
		}},
		{"texts", "a=x y,b=,c=%2C%3B%3D%25é", known, []string{"a=x y,b=,c=,;=%é"}},
		{"spaces around", " a = 1 ;\n b=2 , c=3 ", known, []string{"a = 1", "b=2,c=3"}},
		{"a missing value leaves out its descriptor", "a=1,x=%REQ(x-absent)%;b=2,y=%CONTEXT(absent)%;c=3;d=%LABEL(absent)%", known, []string{"c=3"}},
		{"an optional entry", "idem?=%REQ(x-absent)%,a=1;a=2,idem?=%REQ(x-absent)%;route?,a=3;none?,a=4;x?=%REQ(x-user)%;y?=%LABEL(absent)%;a=%REQ(x-absent)%,b?=1", known, []string{
			"a=1", "a=2", "route=orders,a=3", "a=4", "x=u1",
		}},
		{"missing for an anonymous client", "a=%KEY%;b=%LABEL(region)%;c=%SUBJECT%;d=%TIER%", nil, []string{"c=ip:192.0.2.7", "d=free"}},
		{"an empty value is not missing", "a=%REQ(x-none)%;b=%CONTEXT(empty)%", known, []string{"a=", "b="}},
		{"under a secret key", "api_key=%REQ(x-user)%;authorization=lit;Api_Key=%KEY%;api_key=%CONTEXT(route)%", known, []string{
			"api_key=#u1", "authorization=#lit", "Api_Key=#acme-key", "api_key=#orders",
		}},
		{"headers that may hold keys", "a=%REQ(x-api-key)%;b=%REQ(cookie)%;c=%REQ(x-copy)%;d=%REQ(x-secret-word)%", known, []string{
			"a=#acme-key", "b=#a=b", "c=#my acme-key", "d=#w",
		}},
		{"headers that may hold other secrets", "a=%REQ(x-auth-token)%;b=%REQ(Authentication)%;c=%REQ(x-amz-security-token)%;d=%REQ(x-session)%;e=%REQ(x-hub-signature)%", []string{
			"x-api-key: acme-key", "x-auth-token: u1", "authentication: u1", "x-amz-security-token: u1", "x-session: u1", "x-hub-signature: u1",
		}, []string{"a=#u1", "b=#u1", "c=#u1", "d=#u1", "e=#u1"}},
		{"pseudo headers", "a=%REQ(:path)%;b=%REQ(:method)%;c=%REQ(:authority)%;d=%REQ(Host)%", known, []string{"a=/a", "b=GET", "c=api.example.com", "d=api.example.com"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, nil, nil)
			c := new(call)
			in := ask("/a?api_key=q", context, tt.fields...)
			if tt.fields == nil {
				in = ask("/a", map[string]string{"anonymous": "true"})
			}
			in.Attributes.ContextExtensions["descriptors"] = tt.template
			read(t, &c.in, in)
			if s.findKeys(c) == findSubjects {
				s.findSubjects(t.Context(), c, 0)
			}
			if !c.result.passes() {
				t.Fatalf("result = %v", c.result)
			}
			if diff := cmp.Diff(tt.want, described(t, s, c, acmeKey, "u1", "lit", "orders", "a=b", "my acme-key", "w")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, e := range c.entries {
				if strings.Contains(e.Value, acmeKey) {
					t.Errorf("the key shows in %s=%s", e.Key, e.Value)
				}
			}
		})
	}
}

// TestQueriesInHeaders cuts off queries: proxies copy the path with its query into headers.
func TestQueriesInHeaders(t *testing.T) {
	s := newService(t, nil, nil)
	c := new(call)
	read(t, &c.in, ask("/a", map[string]string{"descriptors": "a=%REQ(x-original-uri)%"}, "x-original-uri: /a?api%5Fkey=%61cme-key"))
	if got := described(t, s, c); len(got) != 1 || got[0] != "a=/a" {
		t.Errorf("%q, want no query", got)
	}
}

// TestPathsAreNotChanged proves that different spellings of a path stay different: only the
// application knows which of them mean the same.
func TestPathsAreNotChanged(t *testing.T) {
	for path, want := range map[string]string{
		"/login": "/login", "/LOGIN": "/LOGIN", "/login;x=1": "/login;x=1", "/login%3Bx": "/login%3Bx", "//login": "//login", "/x/..;/login/": "/x/..;/login/", "/%6cogin": "/%6cogin",
		"/login/%252e%252e/a": "/login/%252e%252e/a", "/login.json": "/login.json", "/login%3fx": "/login%3fx", "/login%c0%af": "/login%c0%af",
		"/login?a=;b#c": "/login", "/login#?a": "/login",
	} {
		s := newService(t, nil, nil)
		overHTTP := request{fields: fields{http: http.Header{"X-Original-Uri": {path}}}}
		if result, _ := overHTTP.readOriginal("descriptors=path"); result != Authenticated {
			t.Fatalf("%s over HTTP: %v", path, result)
		}
		byCheck := new(call)
		read(t, &byCheck.in, ask(path, map[string]string{"descriptors": "path"}))
		for way, c := range map[string]*call{"Check": byCheck, "HTTP": {in: overHTTP}} {
			if diff := cmp.Diff([]string{"path=" + want}, described(t, s, c)); diff != "" {
				t.Errorf("%s by %s (-want +got):\n%s", path, way, diff)
			}
		}
	}
}

// TestPlainKeys proves that Options.PlainKeys gives the source the keys in headers and in
// templates too.
func TestPlainKeys(t *testing.T) {
	s := newService(t, nil, func(o *Options) { o.PlainKeys = true })
	c := new(call)
	read(t, &c.in, ask("/", map[string]string{"descriptors": "api_key=%REQ(x-key)%;a=%REQ(x-secret)%;api_key=demo;b=text"}, "x-key: \tbearer  k1 ", "x-secret: k2"))
	described(t, s, c)
	want := []identity.PlainKey{{Fingerprint: s.opts.Secrets.Fingerprint("k1"), Key: "k1"}, {Fingerprint: s.opts.Secrets.Fingerprint("demo"), Key: "demo"}}
	if diff := cmp.Diff(want, c.request.Plain); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Forget()
	if p := c.request.Plain[:1]; p[0].Key != "" {
		t.Error("a key outlives its request")
	}
}

// TestWhiteSpaceAroundTakenValues proves that white space around a value of a template does
// not give it another log.
func TestWhiteSpaceAroundTakenValues(t *testing.T) {
	for name, context := range map[string]map[string]string{
		"a header":  {"domain": "edge", "descriptors": "route=%REQ(x-route)%"},
		"the route": {"domain": "edge", "descriptors": "route", "route": "\tlogin "},
	} {
		s := newService(t, nil, nil)
		for i, value := range []string{"login", " login", "login\t", " \t login "} {
			want := Limited
			if i == 0 {
				want = Authenticated
			}
			clear(s.meters.results)
			s.check(t, ask("/", context, "x-api-key: acme-key", "x-route: "+value))
			if s.meters.results[want] != 1 {
				t.Errorf("%s, %q: got %v, want %v", name, value, s.meters.results, want)
			}
		}
	}
}

// TestAttemptsInTemplates: the second request of a client meets the limit of 1, whether and how it
// sends an idempotency key.
func TestAttemptsInTemplates(t *testing.T) {
	for _, template := range []string{
		"user=u,idem=%REQ(idempotency-key)%", "idem=%REQ(idempotency-key)%,user=u", "user=u,idem?=%REQ(idempotency-key)%", "user=u,idem",
		"search=u,idem=%REQ(idempotency-key)%", "idem?=%REQ(idempotency-key)%,search=u",
	} {
		for _, fields := range [][]string{nil, {"idempotency-key: "}, {"idempotency-key: 2"}, {"idempotency-key: 2,3"}} {
			s := newService(t, nil, nil)
			for _, fields := range [][]string{{"idempotency-key: 1"}, fields} {
				clear(s.meters.results)
				s.check(t, ask("/", map[string]string{"anonymous": "true", "domain": "once", "descriptors": template}, fields...))
			}
			if s.meters.results[Limited] != 1 {
				t.Errorf("%s with %q: got %v, want %v", template, fields, s.meters.results, Limited)
			}
		}
	}
}

func TestBadTemplates(t *testing.T) {
	secrets := tier.NewSecrets(nil, nil)
	for template, want := range map[string]string{
		"":                                "descriptor 1, entry 1: there is no name",
		"a=1;":                            "descriptor 2, entry 1: there is no name",
		"a=1;b=2,,c=3":                    "descriptor 2, entry 2: there is no name",
		"=x":                              "there is no name",
		"?=x":                             "there is no name",
		"%KEY%":                           "was a = meant",
		"a=b=c":                           "a second =",
		"a=%NAME%":                        `unknown substitution "NAME"`,
		"a=%REQ%":                         `unknown substitution "REQ"`,
		"a=%REQ()%":                       "%REQ()% needs a name",
		"a=%KEY(x)%":                      `unknown substitution "KEY("`,
		"a=%key%":                         "one substitution",
		"a=x%KEY%":                        "one substitution",
		"a=%zz":                           "one substitution",
		"a=%":                             "one substitution",
		"a=" + strings.Repeat("x", 5<<10): "longer than 4096 bytes",
	} {
		if _, err := parseTemplate(template, secrets); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error = %v, want %q", template, err, want)
		}
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	var ts templates
	secrets := tier.NewSecrets(nil, nil)
	for i := range 2 * maxTemplates {
		if got, err := ts.get(fmt.Sprint("a=", i), secrets); err != nil || got[0][0].text != fmt.Sprint(i) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if len(ts.read) != maxTemplates {
		t.Errorf("%d are kept, want %d", len(ts.read), maxTemplates)
	}
}

// FuzzTemplate parses arbitrary templates. The descriptors that they make contain no key.
func FuzzTemplate(f *testing.F) {
	f.Add("api_key;remote_address,a=%REQ(x-api-key)%", "1")
	f.Add("a=%CONTEXT(descriptors)%,b=%LABEL(x)%;c=%41%2", "18446744073709551615")
	f.Add("a=%REQ(x-copy)%", "-1")
	f.Add("a=%A\xff()%", "")
	f.Add("a=%"+strings.Repeat("A", 400)+"()%", "1\xff")
	s := newService(f, nil, nil)
	f.Fuzz(func(t *testing.T, template, cost string) {
		c := new(call)
		read(t, &c.in, ask("/?api_key=planted-key", nil, "x-api-key: planted-key", "x-copy: a planted-key"))
		c.in.context = []text{{"descriptors", template}, {"cost", cost}} // over HTTP a context need not be UTF-8
		c.keys.all, c.keys.fingerprint = []string{"planted-key"}, s.opts.Secrets.Fingerprint("planted-key")
		if err := s.addDescriptors(c, "edge"); err != nil {
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 300 {
				t.Errorf("error %q", err)
			}
			return
		}
		for _, d := range c.request.Descriptors {
			if len(d.Entries) == 0 {
				t.Error("a descriptor without entries")
			}
			for _, e := range d.Entries {
				if strings.Contains(e.Value, "planted-key") && !strings.Contains(template, "planted-key") {
					t.Errorf("the key shows in %s=%s", e.Key, e.Value)
				}
			}
		}
	})
}

// TestLongValues proves that the values of a template have at most maxValues bytes together.
// Above that the request is refused because of its header. The log has no line.
func TestLongValues(t *testing.T) {
	long := strings.Repeat("V", 60<<10)
	for _, tt := range []struct {
		name, template string
		times, want    int
	}{
		{"a header field", "a=%REQ(x-user)%", 8, http.StatusOK},
		{"a header field", "a=%REQ(x-user)%", 9, http.StatusRequestHeaderFieldsTooLarge},
		{"a header field that may hold a key", "a=%REQ(x-session)%", 9, http.StatusRequestHeaderFieldsTooLarge},
		{"an absent header field", "a=%REQ(x-absent)%", 200, http.StatusOK},
		{"the context", "a=%CONTEXT(long)%", 9, http.StatusRequestHeaderFieldsTooLarge},
		{"the path", "a=%PATH%", 9, http.StatusRequestHeaderFieldsTooLarge},
	} {
		for _, separator := range []string{",", ";"} {
			s := newService(t, nil, nil)
			in := ask("/"+long, map[string]string{"domain": "edge", "long": long}, "x-api-key: acme-key", "x-user: "+long)
			if strings.Contains(tt.template, "session") {
				in = ask("/", map[string]string{"domain": "edge"}, "x-api-key: acme-key", "x-session: "+long)
			}
			in.Attributes.ContextExtensions["descriptors"] = strings.TrimSuffix(strings.Repeat(tt.template+separator, tt.times), separator)
			out := s.check(t, in)
			got := http.StatusOK
			if denied := out.GetDeniedResponse(); denied != nil {
				got = int(denied.GetStatus().GetCode())
			}
			if got != tt.want {
				t.Errorf("%s %d times, with %q between: got %d, want %d", tt.name, tt.times, separator, got, tt.want)
			}
		}
	}
}

// TestLongDomain proves that a log line repeats only the beginning of a domain, and shows no character
// that a terminal obeys: a client that reaches /authz can invent names.
func TestLongDomain(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	s := newService(t, nil, func(o *Options) { o.Log = zap.New(core) })
	s.check(t, ask("/", map[string]string{"domain": "\u202e" + strings.Repeat("d", 60<<10), "descriptors": "="}, "x-api-key: acme-key"))
	all := logs.All()
	if len(all) != 1 {
		t.Fatalf("%d lines are logged, want 1", len(all))
	}
	if got, _ := all[0].ContextMap()["domain"].(string); got != `\u202e`+strings.Repeat("d", 122) {
		t.Errorf("the line repeats %q of the domain, want its first 128 bytes, escaped", got)
	}
}
