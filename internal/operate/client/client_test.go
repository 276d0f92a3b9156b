package client

import (
	"testing"
)

func TestBaseURL(t *testing.T) {
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
		got, err := baseURL(address)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("baseURL(%q) = %q, %v, want %q", address, got, err, want)
		}
	}
}
