package pgsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/servers"
)

// A watch is one call of Watch.
type watch struct {
	changes chan tier.Change
	ended   chan error
	stop    context.CancelFunc
}

// listen returns when the source listens.
func listen(t *testing.T, s *Source) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{changes: make(chan tier.Change, 10000), ended: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	go func() {
		w.ended <- s.Watch(ctx, func() { close(ready) }, func(c tier.Change) { w.changes <- c })
	}()
	t.Cleanup(cancel)
	select {
	case <-ready:
	case err := <-w.ended:
		t.Fatalf("Watch: %v", err)
	case <-time.After(patience):
		t.Fatal("Watch is not ready")
	}
	return w
}

func (w *watch) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(patience):
		t.Fatal("Watch has not ended")
		return nil
	}
}

// silent waits until the watch has been silent for so long that it has pinged the
// server.
func (w *watch) silent(t *testing.T, s *servers.PostgresServer) {
	t.Helper()
	const pings = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'slidegate' AND query LIKE '%ping%'`
	for deadline := time.Now().Add(patience); text(t, s, pings) == "0"; {
		if time.Now().After(deadline) {
			t.Fatal("the connection that listens has not pinged the server")
		}
	}
}

// until returns the changes before one that the test sends itself.
func (w *watch) until(t *testing.T, last tier.Change) (changes []string) {
	t.Helper()
	for {
		select {
		case c := <-w.changes:
			if c == last {
				return changes
			}
			changes = append(changes, c.ID+c.Digest[:min(len(c.Digest), 1)])
		case <-time.After(patience):
			t.Fatalf("after %q nothing comes", changes)
		}
	}
}

const channel = "slidegate_tiers"

// TestTriggers checks the changes that each statement reports. It writes a subject as its
// id, a key as the first digit of its digest, and all records as an empty text.
func TestTriggers(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	w := listen(t, open(t, Options{URL: s.URL(), Channel: channel}))
	for _, tt := range []struct{ name, sql, want string }{
		{"new subject", `INSERT INTO slidegate.subjects (id) VALUES ('new')`, "new"},
		{"new keys", `INSERT INTO slidegate.keys (digest, subject) VALUES (repeat('1', 64), 'new'), (repeat('2', 64), 'new')`, "1 2"},
		{"upgrade", `UPDATE slidegate.subjects SET tier = 'pro' WHERE id = 'new'`, "new"},
		{"the same again", `UPDATE slidegate.subjects SET tier = 'pro' WHERE id = 'new'`, ""},
		{"upsert", `INSERT INTO slidegate.subjects (id, tier) VALUES ('new', 'free'), ('newer', 'free') ON CONFLICT (id) DO UPDATE SET tier = excluded.tier`, "new newer"},
		{"several of many", `UPDATE slidegate.subjects SET disabled = true WHERE id <> 'acme'`, "new newer plain"},
		{"overrides", `UPDATE slidegate.subjects SET overrides = '{"x": 1}' WHERE id = 'plain'`, "plain"},
		{"labels", `UPDATE slidegate.subjects SET labels = NULL WHERE id = 'acme'`, "acme"},
		{"revoke", `UPDATE slidegate.keys SET revoked_at = now() WHERE digest = repeat('1', 64)`, "1"},
		{"revoke again", `UPDATE slidegate.keys SET revoked_at = 'epoch' WHERE digest = repeat('1', 64)`, ""},
		{"give a key to another", `UPDATE slidegate.keys SET subject = 'acme' WHERE digest = repeat('1', 64)`, "1"},
		{"another digest", `UPDATE slidegate.keys SET digest = repeat('3', 64) WHERE digest = repeat('1', 64)`, "1 3"},
		{"another id", `UPDATE slidegate.subjects SET id = 'newest' WHERE id = 'new'`, "2 new newest"},
		{"rolled back", `BEGIN; DELETE FROM slidegate.keys; ROLLBACK`, ""},
		{"delete a key", `DELETE FROM slidegate.keys WHERE digest = repeat('3', 64)`, "3"},
		{"delete a subject with keys", `DELETE FROM slidegate.subjects WHERE id = 'acme'`, "a acme b c"},
		{"merge", `MERGE INTO slidegate.subjects s USING (VALUES ('gone')) AS v (id) ON s.id = v.id WHEN MATCHED THEN DELETE`, "d gone"},
		{"nothing", `DELETE FROM slidegate.subjects WHERE id = 'acme'`, ""},

		{"a thousand", `INSERT INTO slidegate.subjects (id) SELECT 'm' || n FROM generate_series(1, 1000) n`, "1000 changes"},
		{"more", `INSERT INTO slidegate.subjects (id) SELECT 'm' || n FROM generate_series(1001, 20000) n`, "all"},
		{"their keys", `INSERT INTO slidegate.keys (digest, subject) SELECT lpad(to_hex(n), 64, '0'), 'm' || n FROM generate_series(1, 20000) n`, "all"},
		{"change of all", `UPDATE slidegate.subjects SET tier = 'pro'`, "all"},
		{"one by one", `DO $$ BEGIN FOR n IN 1..1500 LOOP UPDATE slidegate.subjects SET tier = 'free' WHERE id = 'm' || n; END LOOP; END $$`, "1001 changes, all"},
		{"the next transaction", `UPDATE slidegate.subjects SET tier = 'free' WHERE id = 'm2000'`, "m2000"},
		{"a cascade", `DELETE FROM slidegate.subjects WHERE id LIKE 'm%'`, "all"},
		{"truncate keys", `TRUNCATE slidegate.keys`, "all"},
		{"truncate subjects", `TRUNCATE slidegate.subjects CASCADE`, "all"},
	} {
		exec(t, s, tt.sql)
		last := tier.Change{ID: "the end"}
		exec(t, s, `NOTIFY slidegate_tiers, '{"subject":"the end"}'`)
		changes := w.until(t, last)
		got := strings.Join(slices.Sorted(slices.Values(changes)), " ")
		switch {
		case len(changes) == 1 && changes[0] == "":
			got = "all"
		case len(changes) > 100:
			got = fmt.Sprintf("%d changes", len(changes))
			if changes[len(changes)-1] == "" {
				got += ", all"
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %.200q, want %q", tt.name, got, tt.want)
		}
	}
}

// testPayloads sends notifications by hand, on a channel whose name must be quoted.
func testPayloads(t *testing.T, s *servers.PostgresServer) {
	core, logs := observer.New(zap.WarnLevel)
	const name = `My "tiers"; --`
	w := listen(t, open(t, Options{URL: s.URL(), Channel: name, Log: zap.New(core)}))
	for _, tt := range []struct {
		payload string
		want    tier.Change
	}{
		{digest("a"), tier.Change{Digest: digest("a")}},
		{`{"digest":"` + digest("a") + `"}`, tier.Change{Digest: digest("a")}},
		{`{"subject":"acme"}`, tier.Change{ID: "acme"}},
		{`{"all":true}`, tier.Change{}},
		{"", tier.Change{}},
		{"sesame", tier.Change{}},
		{`{"subject":`, tier.Change{}},
		{strings.Repeat("x", 7999), tier.Change{}},
	} {
		exec(t, s, `SELECT pg_notify($1, $2)`, name, tt.payload)
		select {
		case got := <-w.changes:
			if got != tt.want {
				t.Errorf("%.100q: got %+v, want %+v", tt.payload, got, tt.want)
			}
		case <-time.After(patience):
			t.Fatalf("%.100q: nothing comes", tt.payload)
		}
	}
	// Three were invalid.
	if got := logs.All(); len(got) != 1 || strings.Contains(fmt.Sprint(got[0].ContextMap()), "sesame") {
		t.Errorf("got log %v, want one line without what was sent", got)
	}
	w.stop()
	if err := w.end(t); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: got %v, want %v", err, context.Canceled)
	}
}

func TestNoChannel(t *testing.T) {
	t.Parallel()
	source := open(t, Options{URL: "postgres://127.0.0.1:1"}) // no server is there
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- source.Watch(ctx, nil, nil) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestStandby has a standby, which answers questions and refuses LISTEN.
func TestStandby(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{Settings: []string{"wal_level=replica"}})
	exec(t, s, customers)
	folder := text(t, s, `SHOW data_directory`)
	s.Stop()
	if err := os.WriteFile(filepath.Join(folder, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Start()
	source := open(t, Options{URL: s.URL(), Channel: channel})
	if err := ask(t, source, patience); err != nil {
		t.Errorf("asking a standby: %v", err)
	}
	err := source.Watch(t.Context(), func() { t.Error("listens to a standby") }, func(tier.Change) {})
	if err == nil || !strings.HasPrefix(err.Error(), "tiers.postgres.channel: a standby cannot be listened to") {
		t.Errorf("got %v, want what to do", err)
	}
}

// TestWatchEnds proves that Watch ends when its connection is dead, and works again
// afterwards.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t, servers.PostgresOptions{})
	source := open(t, Options{URL: s.URL(), Channel: channel})
	// A server that is only slow must not seem frozen.
	source.silence, source.answer = 10*time.Millisecond, 2*time.Second
	for _, tt := range []struct {
		name        string
		end, repair func()
	}{
		{"terminated", func() {
			exec(t, s, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slidegate'`)
		}, func() {}},
		{"stopped", s.Stop, s.Start},
		{"killed", s.Kill, s.Start},
		{"frozen", s.Pause, s.Resume},
	} {
		w := listen(t, source)
		w.silent(t, s)
		exec(t, s, `NOTIFY slidegate_tiers, '{"subject":"acme"}'`)
		if got := w.until(t, tier.Change{ID: "acme"}); got != nil {
			t.Errorf("%s: got changes %q before, want none", tt.name, got)
		}
		tt.end()
		if err := w.end(t); err == nil || !strings.Contains(err.Error(), "the connection that listens is lost") {
			t.Errorf("%s: got %v, want that the connection is lost", tt.name, err)
		}
		if tt.name != "terminated" {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err := source.Watch(ctx, func() { t.Errorf("%s: it listens", tt.name) }, func(tier.Change) {})
			cancel()
			if err == nil {
				t.Errorf("%s: got no error", tt.name)
			}
		}
		tt.repair()
	}
	w := listen(t, source)
	source.Close()
	if err := w.end(t); err == nil {
		t.Error("closed: got no error")
	}
}
