package redisstore

import (
	"fmt"
	"strings"
	"testing"
)

// timeStatement is the one line of a script that reads the clock.
const timeStatement = "local time = redis.call('TIME')\n"

// withClock returns the script with another source of the time: an expression of
// Lua that tells it in microseconds.
func withClock(t testing.TB, expression string) script {
	t.Helper()
	return withTime(t, takeScript, expression)
}

// withTime is withClock for any script.
func withTime(t testing.TB, text, expression string) script {
	t.Helper()
	if got := strings.Count(text, "'TIME'"); got != 1 {
		t.Fatalf("the script asks for the time in %d places, want 1", got)
	}
	if got := strings.Count(text, timeStatement); got != 1 {
		t.Fatalf("the script has the statement %q %d times, want once", timeStatement, got)
	}
	return newScript(strings.Replace(text, timeStatement, fmt.Sprintf("local time = {0, %s}\n", expression), 1))
}

// NewWithClock returns a store that runs the same script, except that it reads
// the time, in microseconds, from the key clockKey.
func NewWithClock(t testing.TB, client Client, o Options, clockKey string) *Store {
	t.Helper()
	s := New(client, o)
	s.script = withClock(t, fmt.Sprintf("redis.call('GET', '%s')", clockKey))
	return s
}
