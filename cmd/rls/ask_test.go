package main

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/ratelimit"
)

// TestAskLines prints answers. A denial says how long to wait, or why waiting does not help.
func TestAskLines(t *testing.T) {
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
