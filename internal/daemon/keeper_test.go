package daemon

import (
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/test/servers"
)

// TestResetInEveryInstance has three instances on one Redis. A reset by one counts there at once, and
// in the others within a second.
func TestResetInEveryInstance(t *testing.T) {
	s := redisSettings(t, "redis://"+servers.Redis(t))
	c := window.Check{Key: "{id.acme}:edge|r", Limit: window.Limit{Hits: 1, Window: time.Hour}, Cost: 1}
	var instances []*redisStore
	ask := func(by window.Store, cost uint64) bool {
		t.Helper()
		d, asked := make([]window.Decision, 1), c
		asked.Cost = cost
		if _, err := by.Take(t.Context(), window.MayWait, []window.Check{asked}, d); err != nil {
			t.Fatal(err)
		}
		return d[0].Allowed
	}
	for range 3 {
		o := open(t, s)
		i := o.store
		instances = append(instances, i)
		ask(i.Front, 1)
		waitFor(t, "a denial from memory", func() bool {
			before := i.Front.Stats().Denials
			ask(i.Front, 1)
			return i.Front.Stats().Denials > before
		})
		ask(i.Fallback, 1)
	}
	got, err := instances[0].Remove(t.Context(), []window.LogID{c.Log()})
	if err != nil || len(got) != 1 || got[0].Contents.Used() != 1 {
		t.Fatalf("Remove: got %+v, %v", got, err)
	}
	if !ask(instances[0].Front, 0) {
		t.Error("the instance that was asked still denies from memory")
	}
	if logs, err := instances[0].Fallback.Read(t.Context(), []window.LogID{c.Log()}); err != nil || logs[0].Contents.Used() != 0 {
		t.Errorf("its quota has %+v, %v, want nothing", logs, err)
	}
	for _, other := range instances[1:] {
		waitFor(t, "another instance to forget its denial", func() bool { return ask(other.Front, 0) })
	}
}
