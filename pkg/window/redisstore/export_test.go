package redisstore

import (
	"fmt"
	"strings"
	"testing"
)

// timeStatement is the one line of the script that reads the clock.
const timeStatement = "local time = redis.call('TIME')\n"

// NewWithClock returns a store that runs the same script, except that it reads
// the time, in microseconds, from the key clockKey.
func NewWithClock(t testing.TB, client Client, o Options, clockKey string) *Store {
	t.Helper()
	if got := strings.Count(takeScript, "'TIME'"); got != 1 {
		t.Fatalf("take.lua asks for the time in %d places, want 1", got)
	}
	if got := strings.Count(takeScript, timeStatement); got != 1 {
		t.Fatalf("take.lua has the statement %q %d times, want once", timeStatement, got)
	}
	s := New(client, o)
	s.script = newScript(strings.Replace(takeScript, timeStatement,
		fmt.Sprintf("local time = {0, redis.call('GET', '%s')}\n", clockKey), 1))
	return s
}

// Decode is decode, for tests of replies that the script never sends.
var Decode = decode
