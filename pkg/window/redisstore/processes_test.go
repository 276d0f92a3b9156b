package redisstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
	"github.com/slidegate/slidegate/test/servers"
)

const (
	processes = 3
	// hammerVariable makes the test binary one of the processes, on that address.
	hammerVariable = "REDISSTORE_HAMMER"

	longKeys, longLimit, longCalls    = 4, 500, 300 // in a window that does not end
	shortLimit, shortCalls, shortWin  = 20, 400, 50 * time.Millisecond
	groupLimitA, groupLimitB, grouped = 150, 170, 100
)

// What a process has seen.
type hammered struct {
	Long   [longKeys]int
	Groups int
	Short  []admitted
}

// An admitted call was charged between two readings of the server's clock, in
// microseconds.
type admitted struct{ From, To int64 }

// hammer calls a store as fast as it can, and prints what it has seen.
func hammer(addr string) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	s := redisstore.New(client, redisstore.Options{Prefix: "h:"})
	allowed := func(checks ...window.Check) bool {
		d := make([]window.Decision, len(checks))
		if _, err := s.Take(ctx, window.MayWait, checks, d); err != nil {
			log.Fatal(err)
		}
		return windowtest.Allowed(d)
	}
	now := func() int64 {
		t, err := client.Time(ctx).Result()
		if err != nil {
			log.Fatal(err)
		}
		return t.UnixMicro()
	}
	hour := func(key string, hits uint64) window.Check {
		return window.Check{Key: key, Limit: window.Limit{Hits: hits, Window: time.Hour}, Cost: 1}
	}

	var seen hammered
	for i := range longKeys * longCalls {
		if k := i % longKeys; allowed(hour(strconv.Itoa(k), longLimit)) {
			seen.Long[k]++
		}
	}
	for range grouped {
		if allowed(hour("a", groupLimitA), hour("b", groupLimitB)) {
			seen.Groups++
		}
	}
	short := window.Check{Key: "s", Limit: window.Limit{Hits: shortLimit, Window: shortWin}, Cost: 1}
	for range shortCalls {
		from := now()
		ok := allowed(short)
		if to := now(); ok {
			seen.Short = append(seen.Short, admitted{from, to})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		log.Fatal(err)
	}
}

// TestProcesses lets several processes meet on few logs of one server, on the
// server's own time.
func TestProcesses(t *testing.T) {
	addr := servers.Redis(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var (
		started [processes]*exec.Cmd
		outputs [processes]bytes.Buffer
	)
	for i := range started {
		started[i] = exec.CommandContext(t.Context(), self)
		started[i].Env = append(os.Environ(), hammerVariable+"="+addr)
		started[i].Stdout, started[i].Stderr = &outputs[i], os.Stderr
		if err := started[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var all hammered
	for i := range started {
		if err := started[i].Wait(); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		var seen hammered
		if err := json.Unmarshal(outputs[i].Bytes(), &seen); err != nil {
			t.Fatalf("process %d: %v: %q", i, err, outputs[i].Bytes())
		}
		for k := range seen.Long {
			all.Long[k] += seen.Long[k]
		}
		all.Groups += seen.Groups
		all.Short = append(all.Short, seen.Short...)
	}

	for k, got := range all.Long {
		if got != longLimit {
			t.Errorf("key %d: the processes admitted %d of %d calls, want %d", k, got, processes*longCalls, longLimit)
		}
	}
	if all.Groups != groupLimitA {
		t.Errorf("the processes admitted %d groups, want %d", all.Groups, groupLimitA)
	}
	// A group that b had room for but a had not must not have charged b.
	s := redisstore.New(newClient(t, addr), redisstore.Options{Prefix: "h:"})
	b := window.Check{Key: "b", Limit: window.Limit{Hits: groupLimitB, Window: time.Hour}}
	if got := take(t, s, b)[0].Remaining; got != groupLimitB-groupLimitA {
		t.Errorf("remaining of b: %d, want %d", got, groupLimitB-groupLimitA)
	}
	// No interval of a window certainly holds more than the limit.
	for _, end := range all.Short {
		held := 0
		for _, c := range all.Short {
			if c.From > end.To-shortWin.Microseconds() && c.To <= end.To {
				held++
			}
		}
		if held > shortLimit {
			t.Errorf("the window that ends at %d holds at least %d, limit %d", end.To, held, shortLimit)
		}
	}
	if got := len(all.Short); got < 2*shortLimit {
		t.Errorf("%d calls of the short window were admitted in all, want windows to have passed: %s", got, fmt.Sprint(all.Short))
	}
}
