package serving

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/stack"
)

// attack is the page of an attacker who has a customer's key. It sends everything that
// a browser sends to another origin without a preflight, and then writes that it is
// done.
const attack = `<!DOCTYPE html><title>evil</title><iframe name="sink"></iframe>
<form id="form" method="post" enctype="text/plain" target="sink" action="%[1]s/json"><input name='%[2]s' value='"}'></form>
<script>
const send = (path, body) => fetch("%[1]s" + path, {method: "POST", mode: "no-cors", headers: {"content-type": "text/plain"}, body}).catch(() => {});
const image = path => new Promise(done => { const i = new Image(); i.onload = i.onerror = done; i.src = path; });
const form = new Promise(done => { document.getElementsByName("sink")[0].onload = done; document.getElementById("form").submit(); });
Promise.all([
  send("/json", '%[3]s'), send("/json", '%[4]s'), send("/authz?domain=edge&anonymous=true&descriptors=remote_address", ""),
  image("%[1]s/authz?domain=edge&anonymous=true&descriptors=remote_address"), image("%[5]s/v1/tiers/lookup?id=x"),
  fetch("%[1]s/json", {method: "POST", headers: {"content-type": "application/json"}, body: '%[3]s'}).catch(() => {}),
  form,
]).then(() => { navigator.sendBeacon("%[1]s/json", '%[3]s'); return new Promise(done => setTimeout(done, 100)); }).then(() => document.body.append("all sent"));
</script>`

// TestWebPages opens pages in a real browser that can reach rls.
func TestWebPages(t *testing.T) {
	rls := edge.RLS(t, edge.RLSOptions{Env: map[string]string{"SLIDEGATE_ADMIN_TOKEN_FILE": ""}})
	const (
		entries = `"entries":[{"key":"api_key","value":"demo-free"}]`
		hit     = `{"domain":"edge","descriptors":[{` + entries + `}]}`
		refund  = `{"domain":"edge","descriptors":[{"hits_addend":50,"is_negative_hits":true,` + entries + `}]}`
		// A form sends name=value; the = ends up in a text that is not used.
		inForm = `{"domain":"edge","descriptors":[{` + entries + `}],"hits_addend":1,"x":"`
	)
	_, port, _ := strings.Cut(strings.TrimPrefix(rls.HTTP(), "http://"), ":")
	_, adminPort, _ := strings.Cut(strings.TrimPrefix(rls.Admin(), "http://"), ":")
	target := "http://localhost:" + port
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, attack, target, strings.ReplaceAll(inForm, `"`, "&quot;"), hit, refund, "http://localhost:"+adminPort)
	}))
	t.Cleanup(evil.Close)
	at, err := url.Parse(evil.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		stack.PostJSON(t, rls.HTTP(), stack.Request(1, "api_key=demo-free"))
	}

	origin := "http://evil.example:" + at.Port()
	if html := edge.Chromium(t, origin+"/"); !strings.Contains(html, "all sent") {
		t.Fatalf("the page has not sent everything:\n%s", html)
	}
	_, out := stack.PostJSON(t, rls.HTTP(), stack.Request(1, "api_key=demo-free"))
	if left := out.GetStatuses()[0].GetLimitRemaining(); left != 97 {
		t.Errorf("%d left after three requests of 100 and those of the page, want 97", left)
	}
	if _, out = stack.PostJSON(t, rls.HTTP(), stack.Request(1, "remote_address=127.0.0.1")); out.GetStatuses()[0].GetLimitRemaining() != 49_999 {
		t.Errorf("the page has spent a limit through /authz: %v", out)
	}
	// The requests have arrived.
	if n := strings.Count(rls.Output(), `"origin":"`+origin+`"`); n != 4 {
		t.Errorf("%d requests of the page were refused, want 4: two of fetch, a form, a beacon\n%s", n, rls.Output())
	}
	if !strings.Contains(rls.Output(), "X-Original-URI") {
		t.Errorf("the page has not asked /authz:\n%s", rls.Output())
	}

	if !strings.Contains(rls.Output(), `"path":"/v1/tiers/lookup"`) {
		t.Errorf("the page has not asked for a lookup, or was answered:\n%s", rls.Output())
	}

	// An attacker's name that resolves to this machine, and the names that operators use.
	for _, tt := range []struct{ url, want, never string }{
		{"http://rebind.example:" + port + "/", "http.hosts", "/json"},
		{"http://rebind.example:" + adminPort + "/rlconfig", "admin.hosts", "per-key"},
		{"http://localhost:" + adminPort + "/rlconfig", "# generation ", "BROKEN"},
		{"http://localhost:" + port + "/healthcheck", "store: memory", "hosts"},
	} {
		if html := edge.Chromium(t, tt.url); !strings.Contains(html, tt.want) || strings.Contains(html, tt.never) {
			t.Errorf("%s does not have %q, or has %q:\n%s", tt.url, tt.want, tt.never, html)
		}
	}
}
