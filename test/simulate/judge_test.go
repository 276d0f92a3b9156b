package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/servers"
)

// A scriptCall is a call of a script, as a server has run it.
type scriptCall struct {
	text       string
	keys, argv []string
	clock      int64
	gone       []string // keys that have expired since the call before
	reply      any
}

// TestJudge runs the scripts of a run again on a real Redis, at the same times: each reply must be the
// same, byte for byte. So the Lua of the simulation is that of Redis.
func TestJudge(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.Redis(t), Protocol: 2})
	defer client.Close()
	first, count := seeds(1)
	for seed := first; seed < first+count; seed++ {
		p := newPlan(seed)
		p.Faults = nil
		var calls [][]scriptCall
		w := run(t, p, mutants{record: &calls})
		for i, of := range calls {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			for n, c := range of {
				if err := c.same(t, client); err != nil {
					t.Fatalf("seed %d, redis-%d, call %d of %d: %v", w.plan.Seed, i, n, len(of), err)
				}
			}
			t.Logf("seed %d, redis-%d: %d calls", seed, i, len(of))
		}
	}
}

const (
	timeStatement = "local time = redis.call('TIME')\n"
	asGiven       = "local time = {0, ARGV[#ARGV]}\nARGV[#ARGV] = nil\n"
	// Keys expire only where they did in the run, however long Redis takes for its calls.
	withoutExpiry = `local server = redis
local redis = {pcall = server.pcall, call = function(...)
  local name, key, value, option = ...
  if name == 'PEXPIRE' then
    return 1
  elseif name == 'SET' and option == 'PX' then
    return server.call(name, key, value)
  end
  return server.call(...)
end}
`
)

// same runs the call on a server, and compares the replies.
func (c *scriptCall) same(t *testing.T, client *redis.Client) error {
	for _, key := range c.gone {
		if err := client.Del(t.Context(), key).Err(); err != nil {
			return err
		}
	}
	args := []any{"eval", withoutExpiry + strings.Replace(c.text, timeStatement, asGiven, 1), len(c.keys)}
	for _, s := range append(append(append([]string{}, c.keys...), c.argv...), fmt.Sprint(c.clock)) {
		args = append(args, s)
	}
	got, err := client.Do(t.Context(), args...).Result()
	if err != nil {
		return err
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.reply) {
		return fmt.Errorf("%s at %d\nkeys  %q\nargs  %q\nRedis %q\nhere  %q", scriptName(c.text), c.clock, c.keys, c.argv, got, c.reply)
	}
	return nil
}
