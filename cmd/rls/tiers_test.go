package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// printed returns what a command writes to standard output.
func printed(t *testing.T, run func() error) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = f
	runErr := run()
	os.Stdout = before
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), runErr
}

// TestTiersCommands runs the commands against a port that remembers what it was
// asked.
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
		}
	}))
	defer port.Close()
	at := adminPort{Admin: port.URL + "/", Timeout: time.Minute}
	c := new(cli)
	for _, tt := range []struct {
		run   func() error
		out   string
		fails string
	}{
		{func() error { return tiersLookupCmd{who{Digest: "ab"}, at}.Run(c) }, "{\n  \"held\": null\n}", ""},
		{func() error { return tiersLookupCmd{who{ID: "a&b"}, at}.Run(c) }, "{\n  \"held\": null\n}", ""},
		{func() error { return tiersLookupCmd{who{ID: "bad"}, at}.Run(c) }, "", "the admin port answers 400 Bad Request: no such id"},
		{func() error { return tiersLookupCmd{adminPort: at}.Run(c) }, "", "name a key by --digest or a subject by --id"},
		{func() error { return tiersInvalidateCmd{who: who{Digest: "ab"}, adminPort: at}.Run(c) }, "", ""},
		{func() error { return tiersInvalidateCmd{who: who{ID: "acme"}, adminPort: at}.Run(c) }, "", ""},
		{func() error { return tiersInvalidateCmd{All: true, adminPort: at}.Run(c) }, "", ""},
		{func() error { return tiersInvalidateCmd{adminPort: at}.Run(c) }, "", "name a key by --digest, a subject by --id, or --all"},
	} {
		out, err := printed(t, tt.run)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if strings.TrimSpace(out) != tt.out || message != tt.fails {
			t.Errorf("printed %q, %q; want %q, %q", out, message, tt.out, tt.fails)
		}
	}
	want := []string{
		"GET /v1/tiers/lookup?digest=ab ", "GET /v1/tiers/lookup?id=a%26b ", "GET /v1/tiers/lookup?id=bad ",
		`POST /v1/tiers/invalidate {"digest":"ab"}`, `POST /v1/tiers/invalidate {"subject":"acme"}`, `POST /v1/tiers/invalidate {"all":true}`,
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if out, err := printed(t, tiersSchemaCmd{}.Run); err != nil || !strings.Contains(out, "slidegate.subjects") {
		t.Errorf("schema: %.60q, %v", out, err)
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
