package pgsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/puddle/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/test/servers"
)

// ask looks acme up within a time.
func ask(t *testing.T, s *Source, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := s.Lookup(ctx, tier.Key{Digest: digest("a")})
	if err == nil && (r.Subject == nil || r.Subject.ID != "acme") {
		t.Errorf("got %v, want acme", r.Subject)
	}
	return err
}

// TestRestart breaks all connections of the pool, in each way. No lookup after the server
// is back fails.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	source := open(t, Options{URL: s.URL()})
	for _, tt := range []struct {
		name string
		end  func()
	}{
		{"stopped", s.Stop},
		{"killed", s.Kill},
		{"terminated", func() {
			exec(t, s, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slidegate'`)
		}},
	} {
		warm(t, source)
		tt.end()
		if tt.name != "terminated" {
			if err := ask(t, source, patience); err == nil || !strings.HasPrefix(err.Error(), "tiers.postgres.url: ") || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want at once an error of the connection", tt.name, err)
			}
		}
		s.Start()
		for range 2 * defaultPoolSize {
			if err := ask(t, source, patience); err != nil {
				t.Errorf("%s, back again: %v", tt.name, err)
			}
		}
	}
}

// warm waits until all connections are made and have prepared the queries, and returns
// their processes.
func warm(t *testing.T, s *Source) (pids []uint32) {
	t.Helper()
	var idle []*puddle.Resource[*connection]
	for deadline := time.Now().Add(patience); len(idle) < int(s.pool.Stat().MaxResources()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %+v, want all connections made", s.pool.Stat())
		}
		for _, r := range idle {
			r.ReleaseUnused() // the others are being made, or the pool looks at them
		}
		idle = s.pool.AcquireAllIdle()
	}
	for _, r := range idle {
		conn := r.Value()
		got, err := conn.Exec(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%slidegate.subjects%' AND name LIKE 'stmt\_%'`).ReadAll()
		if err != nil || string(got[0].Rows[0][0]) != "4" {
			t.Errorf("a new connection has read %v queries, %v, want 4", got, err)
		}
		pids = append(pids, conn.PID())
		r.Release() // an old one, too
	}
	slices.Sort(pids)
	return pids
}

// TestWarm proves that no request waits for a new connection: the pool makes all of them
// before the first question, and again after an outage.
func TestWarm(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	s.Stop()
	source := open(t, Options{URL: s.URL(), Channel: channel})
	s.Start()
	first := warm(t, source)
	if err := ask(t, source, patience); err != nil {
		t.Error(err)
	}
	if len(first) != defaultPoolSize || source.pool.Stat().EmptyAcquireCount() != 0 {
		t.Errorf("got connections %v and %+v, want %d before the first question", first, source.pool.Stat(), defaultPoolSize)
	}

	w := listen(t, source)
	s.Kill()
	if err := w.end(t); err == nil {
		t.Error("killed: Watch ended without an error")
	}
	s.Start()
	if again := warm(t, source); len(again) != defaultPoolSize || slices.Equal(first, again) {
		t.Errorf("after an outage: got connections %v, then %v, want as many others", first, again)
	}
	if err := ask(t, source, patience); err != nil {
		t.Errorf("after an outage: %v", err)
	}
}

// TestOld has connections at the end of their lifetime. They end one by one, and while
// they have no question.
func TestOld(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	source := open(t, Options{URL: s.URL()})
	first := warm(t, source)
	others := func() int {
		return len(slices.DeleteFunc(warm(t, source), func(pid uint32) bool { return slices.Contains(first, pid) }))
	}
	for _, r := range source.pool.AcquireAllIdle() {
		if c := r.Value(); time.Until(c.until) < lifetime-time.Hour/2 || time.Until(c.until) > lifetime+spread {
			t.Errorf("a new connection is old in %v, want in %v to %v", time.Until(c.until), lifetime, lifetime+spread)
		}
		r.Release()
	}

	age := func() *puddle.Resource[*connection] {
		r, err := source.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Value().until = time.Now().Add(-time.Minute) // a clock may read the same twice
		return r
	}
	release(age())
	if got := others(); got != 1 {
		t.Errorf("one is old after its question: got %d other connections, want 1", got)
	}
	var all []*puddle.Resource[*connection]
	for range defaultPoolSize {
		all = append(all, age())
	}
	first = nil
	for _, r := range all {
		first = append(first, r.Value().PID())
		r.Release() // as if they had become old without a question
	}
	for deadline := time.Now().Add(patience); others() < defaultPoolSize; time.Sleep(10 * time.Millisecond) {
		if stats := source.pool.Stat(); stats.TotalResources() < stats.MaxResources()-1 || time.Now().After(deadline) {
			t.Fatalf("all are old: got %+v and %d other connections, want %d, and at most one missing", stats, others(), defaultPoolSize)
		}
	}
}

// testHugeRow has a row that is longer than allowed. It breaks only the connection that
// reads it.
func testHugeRow(t *testing.T, s *servers.PostgresServer) {
	exec(t, s, `UPDATE slidegate.subjects SET tier = repeat('x', 1000000) WHERE id = 'gone'`)
	source := open(t, Options{URL: s.URL()})
	before := warm(t, source)
	if _, err := lookup(t, source, tier.Key{ID: "gone"}); !errors.Is(err, tier.ErrBadRecord) || !strings.Contains(err.Error(), "the row is longer") {
		t.Errorf("got %v, want a bad record", err)
	}
	kept := slices.DeleteFunc(warm(t, source), func(pid uint32) bool { return !slices.Contains(before, pid) })
	exec(t, s, `UPDATE slidegate.subjects SET tier = 'free' WHERE id = 'gone'`)
	if len(kept) != len(before)-1 {
		t.Errorf("got connections %v of %v still there, want all but one", kept, before)
	}
}

// TestFrozen has a server that does not answer. Each lookup ends in time and frees its
// place in the pool. Lookups work again when the server goes on.
func TestFrozen(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{})
	exec(t, s, customers)
	source := open(t, Options{URL: s.URL(), Timeout: 5 * time.Second})
	for range 2 {
		warm(t, source)
		s.Pause()
		for range 3 * defaultPoolSize {
			if err := ask(t, source, 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("frozen: got %v, want %v", err, context.DeadlineExceeded)
			}
		}
		s.Resume()
		if err := ask(t, source, patience); err != nil {
			t.Errorf("going on: %v", err)
		}
	}

	// Close waits neither for lookups nor for the server.
	s.Pause()
	asked := make(chan error)
	go func() { asked <- ask(t, source, patience) }()
	for source.pool.Stat().AcquiredResources() == 0 {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan error)
	go func() { closed <- source.Close() }()
	for range 2 {
		select {
		case err := <-asked:
			if err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("asking while it is closed: got %v", err)
			}
		case err := <-closed:
			if err != nil {
				t.Errorf("Close: %v", err)
			}
		case <-time.After(10 * time.Second): // the library alone waits for 15
			t.Fatal("a caller waits for a frozen server")
		}
	}
	if err := ask(t, source, patience); err == nil {
		t.Error("asking when it is closed: got no error")
	}

	// Close does not wait for new connections either.
	connecting := open(t, Options{URL: s.URL() + "?connect_timeout=60"})
	for connecting.pool.Stat().TotalResources() == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { closed <- connecting.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for connections to be made")
	}
}

// testSlow proves that the server ends a slow query, and that its connection stays usable.
func testSlow(t *testing.T, s *servers.PostgresServer) {
	source := open(t, Options{
		URL: s.URL(), PoolSize: 1, Timeout: 20 * time.Millisecond,
		Query: `SELECT 'acme' AS subject FROM pg_sleep(60) WHERE $1 <> ''`,
	})
	pid := func() uint32 {
		r, err := source.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release(r)
		return r.Value().PID()
	}
	before := pid()
	if _, err := lookup(t, source, tier.Key{Digest: digest("a")}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v, want that it took too long", err)
	}
	if after := pid(); after != before {
		t.Errorf("after that: got connection %d, want %d as before", after, before)
	}

	// A caller with less time than the server gives up first.
	patient := open(t, Options{URL: s.URL(), PoolSize: 1, Timeout: time.Minute, Query: source.o.Query})
	if err := ask(t, patient, 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

// testChangedTable changes the type of a column of a prepared query.
func testChangedTable(t *testing.T, s *servers.PostgresServer) {
	source := open(t, Options{URL: s.URL(), PoolSize: 1})
	for _, change := range []string{"", `ALTER TABLE slidegate.subjects ALTER tier TYPE varchar(50)`, `DEALLOCATE ALL`} {
		if change == `DEALLOCATE ALL` { // as a pooler does, in the session itself
			r, err := source.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Value().Exec(t.Context(), change).Close(); err != nil {
				t.Error(err)
			}
			release(r)
		} else {
			exec(t, s, change)
		}
		if err := ask(t, source, patience); err != nil {
			t.Errorf("after %q: %v", change, err)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	s := start(t, servers.PostgresOptions{Settings: []string{"max_connections=5", "superuser_reserved_connections=3"}})
	exec(t, s, customers)
	first := open(t, Options{URL: s.URL(), PoolSize: 2})
	// The server refuses connections until it notices that others have ended.
	eventually := func(what string, try func() error) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			err := try()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	var held [2]*puddle.Resource[*connection]
	releaseAll := func() {
		for i, r := range held {
			if r != nil {
				release(r)
				held[i] = nil
			}
		}
	}
	t.Cleanup(releaseAll) // Close waits for it
	for i := range held {
		eventually("taking all", func() (err error) {
			held[i], err = first.pool.Acquire(t.Context())
			return err
		})
	}
	releaseAll()
	second := open(t, Options{URL: s.URL()}) // it takes all connections that are left
	if err := ask(t, second, patience); err == nil || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("got %v, want what to do about max_connections", err)
	}
	if err := ask(t, first, patience); err != nil {
		t.Errorf("who has a connection: %v", err)
	}
	first.Close()
	eventually("with room again", func() error { return ask(t, second, patience) })
}

// TestCredentials checks the login of both sides. New connections use the present
// passwords and certificates.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const secret = "open@sesame/#"
	s := start(t, servers.PostgresOptions{Password: secret, TLS: true})
	exec(t, s, customers)
	pem, err := os.ReadFile(s.CA())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	trusting := func() *tls.Config { return &tls.Config{RootCAs: roots} }
	password := func() string { return secret }
	withPassword := strings.Replace(s.URL(), "slidegate@", "slidegate:open%40sesame%2F%23@", 1)
	elsewhere := strings.Replace(s.URL(), "127.0.0.1", "127.0.0.1.nip.invalid", 1)
	for _, tt := range []struct {
		name string
		o    Options
		want string // in the error; empty: the login works
	}{
		{"right", Options{URL: s.URL(), Password: password, TLS: trusting}, ""},
		{"in the URL", Options{URL: withPassword, Password: func() string { return "" }, TLS: trusting}, ""},
		{"not verified", Options{URL: withPassword, TLS: func() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }}, ""},
		{"another name", Options{URL: withPassword, TLS: func() *tls.Config { return &tls.Config{RootCAs: roots, ServerName: "localhost"} }}, ""},
		{"the second host", Options{URL: strings.Replace(withPassword, "@127", "@127.0.0.1:1,127", 1), TLS: trusting}, ""},
		{"no password", Options{URL: s.URL(), TLS: trusting}, "tiers.postgres.password: "},
		{"wrong password", Options{URL: withPassword, Password: func() string { return secret + "x" }, TLS: trusting}, "tiers.postgres.password: "},
		{"no TLS", Options{URL: withPassword}, "tiers.postgres.tls.mode"},
		{"TLS of none", Options{URL: withPassword, TLS: func() *tls.Config { return nil }}, "tiers.postgres.tls.mode"},
		{"unknown authority", Options{URL: withPassword, TLS: func() *tls.Config { return &tls.Config{RootCAs: x509.NewCertPool()} }}, "tiers.postgres.tls.ca_file: "},
		{"wrong name", Options{URL: withPassword, TLS: func() *tls.Config { return &tls.Config{RootCAs: roots, ServerName: "example.com"} }}, "tiers.postgres.url: "},
		{"unknown host", Options{URL: elsewhere, TLS: trusting}, "tiers.postgres.url: no server answers there"},
		{"unknown database", Options{URL: withPassword + "x", TLS: trusting}, "tiers.postgres.url: "},
		{"unknown user", Options{URL: strings.Replace(withPassword, "slidegate:", "x:", 1), TLS: trusting}, "tiers.postgres.password: "},
		{"unknown parameter", Options{URL: withPassword + "?no_such_parameter=x", TLS: trusting}, "tiers.postgres.url: the server refuses a parameter"},
		{"bad value of one", Options{URL: withPassword + "?statement_timeout=x", TLS: trusting}, "tiers.postgres.url: the server refuses a parameter"},
		{"socket", Options{URL: s.SocketURL(), TLS: trusting}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.PoolSize = 1
			err := ask(t, open(t, tt.o), patience)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "tiers.postgres.") {
				t.Errorf("got %v, want a setting first", err)
			}
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}

	var now atomic.Pointer[string]
	wrong := "wrong"
	now.Store(&wrong)
	source := open(t, Options{URL: s.URL(), Password: func() string { return *now.Load() }, TLS: trusting})
	if err := ask(t, source, patience); err == nil {
		t.Error("with a wrong password: got no error")
	}
	right := secret
	now.Store(&right)
	if err := ask(t, source, patience); err != nil {
		t.Errorf("with the new password: %v", err)
	}
}

// testNoTLS has a server without TLS.
func testNoTLS(t *testing.T, s *servers.PostgresServer) {
	err := ask(t, open(t, Options{URL: s.URL(), PoolSize: 1, TLS: func() *tls.Config { return new(tls.Config) }}), patience)
	if err == nil || !strings.HasPrefix(err.Error(), "tiers.postgres.tls.mode: the server has no TLS") {
		t.Errorf("got %v, want that it refuses TLS", err)
	}
}

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
		case err := <-w.ended:
			t.Fatalf("after %q Watch ended: %v", changes, err)
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
	source.silence = 10 * time.Millisecond
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
		source.answer = patience // a server that is only slow must not seem frozen
		if tt.name == "frozen" {
			source.answer = 5 * time.Second
		}
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
