package sharedlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

type record struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"`
}

// A fakeDocument fails while err is set.
type fakeDocument struct {
	Memory
	fails atomic.Bool
}

func (d *fakeDocument) Load(ctx context.Context, known string) (string, []byte, error) {
	if d.fails.Load() {
		return "", nil, errors.New("connection refused")
	}
	return d.Memory.Load(ctx, known)
}

// An instance has a list, and the names that it was last given.
type instance struct {
	*List[record]
	last atomic.Value // names in one line
	log  *observer.ObservedLogs
}

func (i *instance) names() string {
	names, _ := i.last.Load().(string)
	return names
}

func newInstance(d Document) *instance {
	core, log := observer.New(zapcore.InfoLevel)
	i := &instance{log: log}
	i.List = New(Options[record]{
		Name: "records", Document: d, Max: 100, Now: time.Now, Log: zap.New(core),
		Parse: func(data []byte) (*record, error) {
			r := new(record)
			if json.Unmarshal(data, r) != nil || r.Name == "" {
				return nil, errors.New("it has no name")
			}
			return r, nil
		},
		Until: func(r *record) time.Time { return r.Until },
		Changed: func(all []*record) {
			var names []string
			for _, r := range all {
				names = append(names, r.Name)
			}
			i.last.Store(strings.Join(names, " "))
		},
	})
	return i
}

func (i *instance) add(t *testing.T, name string, lasts time.Duration) {
	t.Helper()
	err := i.Change(t.Context(), func(all []*record) ([]*record, error) {
		return append(all, &record{name, time.Now().Add(lasts)}), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestInstances: every instance has a change within a second, records end by themselves, and stay while
// the document cannot be read.
func TestInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		d := new(fakeDocument)
		one, two := newInstance(d), newInstance(d)
		for _, i := range []*instance{one, two} {
			running.Go(func() { _ = i.Run(ctx) })
		}
		want := func(after time.Duration, names string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			for n, i := range []*instance{one, two} {
				if got := i.names(); got != names {
					t.Errorf("instance %d has %q, want %q", n+1, got, names)
				}
			}
		}
		one.add(t, "short", 10*time.Second)
		one.add(t, "long", time.Minute)
		want(time.Second-1, "short long")
		two.add(t, "other", time.Minute)
		want(time.Second-1, "short long other")
		d.fails.Store(true)
		want(7*time.Second, "short long other")
		want(2*time.Second, "long other")
		d.fails.Store(false)
		if err := two.Change(ctx, func(all []*record) ([]*record, error) { return all[1:], nil }); err != nil {
			t.Error(err)
		}
		want(time.Second-1, "other")
		want(time.Minute, "")
		for _, i := range []*instance{one, two} {
			if n := i.log.Len(); n != 1 {
				t.Errorf("%d lines, want 1 for the outage: %v", n, i.log.All())
			}
		}
		cancel()
		running.Wait()
	})
}

// TestMalformed: what any program may write is logged once, and what is known stays. The next change
// makes the document right.
func TestMalformed(t *testing.T) {
	for data, left := range map[string]string{
		"nonsense": "good", "null": "", `{"name": "a"}`: "good", `[7, {"name": ""}]`: "",
		`[{"name": "b", "until": "2999-01-01T00:00:00Z"}, {}]`: "b", "[" + strings.Repeat("{},", 100) + "{}]": "good",
	} {
		var d Memory
		i := newInstance(&d)
		i.add(t, "good", time.Hour)
		if _, ok, _ := d.Swap(t.Context(), i.version, []byte(data), time.Hour); !ok {
			t.Fatal("not swapped")
		}
		for range 3 {
			_, _ = i.refresh(t.Context())
		}
		lines := 1
		if data == "null" {
			lines = 0
		}
		if i.names() != left || i.log.Len() != lines {
			t.Errorf("%.40s: %q, %d lines, want %q", data, i.names(), i.log.Len(), left)
		}
		i.add(t, "next", time.Hour)
		other := newInstance(&d)
		_, _ = other.refresh(t.Context())
		if want := strings.TrimSpace(left + " next"); other.names() != want || other.log.Len() > 0 {
			t.Errorf("%.40s: after a change %q, want %q", data, other.names(), want)
		}
	}
}

// TestChangesAtOnce: no change of many instances is lost.
func TestChangesAtOnce(t *testing.T) {
	var d Memory
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for k := range 5 {
				newInstance(&d).add(t, fmt.Sprint(n, "-", k), time.Hour)
			}
		})
	}
	all.Wait()
	i := newInstance(&d)
	_, _ = i.refresh(t.Context())
	if got := len(strings.Fields(i.names())); got != 40 {
		t.Errorf("%d records: %s", got, i.names())
	}
}
