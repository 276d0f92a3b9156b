package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTiersCommands runs the commands against a port that records the requests.
func TestTiersCommands(t *testing.T) {
	var asked []string
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		if r.URL.Query().Get("id") == "bad" {
			http.Error(w, "no such id", http.StatusBadRequest)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"held":null}`)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer port.Close()
	for _, tt := range []struct{ line, out, fails string }{
		{"lookup --digest ab", "{\n  \"held\": null\n}", ""},
		{"lookup --id a&b", "{\n  \"held\": null\n}", ""},
		{"lookup --id bad", "", "rls: the admin port answers 400 Bad Request: no such id\n"},
		{"invalidate --digest ab", `The service asks its source of tiers again at the next request of the key with the digest "ab". This command does not check whether the source has the key.`, ""},
		{"invalidate --id acme", `The service asks its source of tiers again at the next request of the subject "acme". This command does not check whether the source has the subject.`, ""},
		{"invalidate --all", "The service asks its source of tiers again at the next request of each key and subject.", ""},
	} {
		_, out, fails := command(t, "", strings.Fields("tiers "+tt.line+" --timeout 1m --admin "+port.URL+"/")...)
		if strings.TrimSpace(out) != tt.out || fails != tt.fails {
			t.Errorf("rls tiers %s: printed %q, %q; want %q, %q", tt.line, out, fails, tt.out, tt.fails)
		}
	}
	want := []string{
		"GET /v1/tiers/lookup?digest=ab ", "GET /v1/tiers/lookup?id=a%26b ", "GET /v1/tiers/lookup?id=bad ",
		`POST /v1/tiers/invalidate {"digest":"ab"}`, `POST /v1/tiers/invalidate {"subject":"acme"}`, `POST /v1/tiers/invalidate {"all":true}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestAdminURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:6070": "http://127.0.0.1:6070",
		":6070":          "http://127.0.0.1:6070",
		"0.0.0.0:6070":   "http://127.0.0.1:6070",
		"[::]:6070":      "http://127.0.0.1:6070",
		"[::1]:6070":     "http://[::1]:6070",
		"admin.test:1":   "http://admin.test:1",
		"":               "",

		"http://127.0.0.1:6070":   "http://127.0.0.1:6070",
		"http://127.0.0.1:6070/":  "http://127.0.0.1:6070",
		"https://admin.test/rls/": "https://admin.test/rls",
		"localhost:6070":          "http://localhost:6070",
		"127.0.0.1":               "",
		"6070":                    "",
		"127.0.0.1:6070/v1":       "",
		"unix:///run/rls.sock":    "",
		"ftp://127.0.0.1:6070":    "",
		"http://":                 "",
	} {
		got, err := adminURL(address)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("adminURL(%q) = %q, %v, want %q", address, got, err, want)
		}
	}
}
