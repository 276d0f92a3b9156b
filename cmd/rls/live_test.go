package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestLiveNothing asks addresses on which nothing listens, and one that never answers.
func TestLiveNothing(t *testing.T) {
	quiet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	defer quiet.Close()
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	args := func(more ...string) []string {
		return append([]string{"explain", "--live", "--domain", "d", "--descriptor", "a=b", "--timeout", "500ms"}, more...)
	}
	for _, tt := range []struct {
		own  string // SLIDEGATE_GRPC_ADDRESS
		args []string
		want string
	}{
		{gone.Addr().String(), args(), "rls: explain: nothing listens on " + gone.Addr().String() + ": start rls there, or name another --address\n"},
		{"", args("--address", gone.Addr().String()), "rls: explain: nothing listens on " + gone.Addr().String() + ": start rls there, or name another --address\n"},
		{socket, args(), "rls: explain: nothing listens on " + socket + ": start rls there, or name another --address\n"},
		{quiet.Addr().String(), args(), "DeadlineExceeded"},
	} {
		if tt.own != "" {
			t.Setenv("SLIDEGATE_GRPC_ADDRESS", tt.own)
		}
		code, out, fails := command(t, "", tt.args...)
		if code != 1 || out != "" || !strings.Contains(fails, tt.want) {
			t.Errorf("%q: got exit code %d, %q and %q, want 1 and %q", tt.args, code, out, fails, tt.want)
		}
	}
}
