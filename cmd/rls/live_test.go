package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/edge/ratelimit"
)

// TestLiveLines prints answers. A denial says how long to wait, or why waiting does not help.
func TestLiveLines(t *testing.T) {
	one, two := []string{"a: 10 of 10 remaining"}, []string{"a: 260 of 300 remaining", "b: 0 of 40 remaining"}
	for _, tt := range []struct {
		reply ratelimit.Reply
		want  string
	}{
		{ratelimit.Reply{Limits: one}, "OK  a: 10 of 10 remaining"},
		{ratelimit.Reply{Limits: one, Degraded: true}, "OK  a: 10 of 10 remaining (degraded)"},
		{ratelimit.Reply{Denied: true, Limits: one, Rule: "a", Never: true}, "OVER_LIMIT  a: 10 of 10 remaining; the cost is above the limit"},
		{ratelimit.Reply{Denied: true, Limits: two, Rule: "b", Never: true}, "OVER_LIMIT  a: 260 of 300 remaining; b: 0 of 40 remaining; the cost is above the limit of b"},
		{ratelimit.Reply{Denied: true, Limits: two, Rule: "b", Wait: time.Hour - time.Second}, "OVER_LIMIT  a: 260 of 300 remaining; b: 0 of 40 remaining; retry after 59m59s"},
		{ratelimit.Reply{Denied: true, Limits: one, Wait: time.Second, Degraded: true}, "OVER_LIMIT  a: 10 of 10 remaining; retry after 1s (degraded)"},
		{ratelimit.Reply{Denied: true, Limits: one}, "OVER_LIMIT  a: 10 of 10 remaining"},
	} {
		if got := lineOf(&tt.reply); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

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
		return append([]string{"explain", "--live", "--domain", "d", "--descriptor", "a=b", "--timeout", "200ms"}, more...)
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
