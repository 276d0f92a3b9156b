package tiertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Fixture is a source with its server. The next lookup sees the changes of its
// functions, and the source's watchers report them. The functions run in the test's
// goroutine and fail the test on an error.
type Fixture struct {
	// Source is the source under test. The suite closes it.
	Source tier.Source
	// Put stores s, which may be invalid, in place of the subject with its id. It adds
	// these digests to those of the subject.
	Put func(t *testing.T, s tier.Subject, digests ...string)
	// Remove revokes one key. RemoveSubject removes a subject with its keys.
	Remove        func(t *testing.T, digest string)
	RemoveSubject func(t *testing.T, id string)
	// Corrupt replaces the record of a key with a malformed one.
	Corrupt func(t *testing.T, digest string)
	// Stop ends the server at once. Start starts it again at the same address.
	Stop, Start func(t *testing.T)
	// Freeze stops the answers of the server without closing its connections. Thaw
	// resumes them. Nil: the server cannot do this.
	Freeze, Thaw func(t *testing.T)
	// Forgets is true if a stopped server loses its records.
	Forgets bool
}

// patience is how long a test waits for an event before it fails.
const patience = time.Minute

// Run runs the suite as subtests of t. open makes a fixture without subjects for each of
// them.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, Fixture)
	}{
		{"subjects", runSubjects},
		{"ids", runIDs},
		{"bad records", runBadRecords},
		{"changes", runChanges},
		{"deadline", runDeadline},
		{"outage", runOutage},
		{"load", runLoad},
		{"close", runClose},
		{"watch", runWatch},
		{"watch and outage", runWatchOutage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			f := open(t)
			f.Source = &closeOnce{Source: f.Source}
			t.Cleanup(func() {
				if err := f.Source.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			tt.run(t, f)
		})
	}
}

// closeOnce allows a test to close its source, which the suite closes again.
type closeOnce struct {
	tier.Source
	once sync.Once
}

func (s *closeOnce) Close() (err error) {
	s.once.Do(func() { err = s.Source.Close() })
	return err
}

// watcher returns the source as a watcher, if it is one.
func watcher(f Fixture) (w tier.Watcher, ok bool) {
	w, ok = f.Source.(*closeOnce).Source.(tier.Watcher)
	return w, ok
}

// digest returns the digest of an API key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func byDigest(key string) tier.Key { return tier.Key{Digest: digest(key)} }

// lookup looks a key up. It fails the test if that takes longer than patience.
func lookup(t *testing.T, f Fixture, k tier.Key) (*tier.Record, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := f.Source.Lookup(ctx, k)
	if (r == nil) == (err == nil) {
		t.Fatalf("Lookup = %v, %v; want a record or an error", r, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("Lookup took %v: %v, %v", patience, r, err)
	}
	return r, err
}

// want looks a key up and compares its subject with s, which is nil for an unknown key.
func want(t *testing.T, f Fixture, k tier.Key, s *tier.Subject) *tier.Record {
	t.Helper()
	r, err := lookup(t, f, k)
	if err != nil {
		t.Fatalf("Lookup(%+v): %v", k, err)
	}
	if diff := cmp.Diff(s, r.Subject, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Lookup(%+v): (-want +got)\n%s", k, diff)
	}
	together(t, f, k, r, nil)
	return r
}

// together looks a key up together with others, if the source can, and compares the result
// with that of Lookup.
func together(t *testing.T, f Fixture, k tier.Key, r *tier.Record, err error) {
	t.Helper()
	b, ok := f.Source.(*closeOnce).Source.(tier.Batcher)
	if !ok || b.Batch() == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	others := []tier.Key{byDigest("unknown"), {ID: "an unknown id"}, {ID: "an \xff invalid id"}, byDigest("also unknown")}
	results := b.LookupAll(ctx, append(others[:len(others):len(others)], k))
	for i := range others {
		if got := results[i]; got.Err != nil || got.Record.Subject != nil {
			t.Errorf("LookupAll(%+v) = %+v, want no subject", others[i], got)
		}
	}
	got := results[len(others)]
	if diff := cmp.Diff(r, got.Record, cmpopts.EquateEmpty()); diff != "" || errors.Is(err, tier.ErrBadRecord) != errors.Is(got.Err, tier.ErrBadRecord) || (err == nil) != (got.Err == nil) {
		t.Errorf("LookupAll(%+v) = %+v, want as Lookup: %+v, %v", k, got, r, err)
	}
}

// eventually waits until the source returns the subject again after an outage.
func eventually(t *testing.T, f Fixture, k tier.Key, s *tier.Subject) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r, err := lookup(t, f, k)
		if err == nil && cmp.Equal(s, r.Subject, cmpopts.EquateEmpty()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("Lookup(%+v) = %v, %v, for %v", k, r, err, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// subjects has one subject of each kind, by one of its keys.
var subjects = map[string]tier.Subject{
	"plain":    {ID: "acme", Tier: "pro"},
	"disabled": {ID: "gone", Tier: "pro", Disabled: true},
	"no tier":  {ID: "hobby"},
	"foreign":  {ID: "other", Tier: "größer als ä"},
	"overrides": {ID: "big", Tier: "pro", Extra: &tier.Extra{Overrides: map[string]tier.Override{
		"per-key": {Limits: []window.Limit{{Hits: 500, Window: time.Minute}, {Hits: 5, Window: time.Second}}},
		"export":  {Unlimited: true},
		"search":  {Observe: tier.ObserveOnly},
		"pilot":   {Limits: []window.Limit{{Hits: 7, Window: time.Minute}}, Observe: tier.ObserveNot, Until: time.Date(2999, 1, 31, 18, 0, 0, 0, time.UTC)},
	}}},
	"labels": {ID: "far", Extra: &tier.Extra{Labels: map[string]string{"region": "eu", "a.B_-9": "", "who": `Ünı "x" \ <&>`}}},
	"both": {ID: "all", Tier: "free", Disabled: true, Extra: &tier.Extra{
		Overrides: map[string]tier.Override{"export": {Unlimited: true}},
		Labels:    map[string]string{"region": "us"},
	}},
	"limits": {ID: "carries", Tier: "carrying", Extra: &tier.Extra{Limits: limitsOf(
		limits.Limit{Requests: 100, Unit: "minute"}, limits.Limit{Name: "tokens", Requests: 1<<32 - 1, Unit: "day"},
	)}},
	"bounds": {ID: strings.Repeat("i", tier.MaxText), Tier: strings.Repeat("t", tier.MaxText), Extra: &tier.Extra{
		Labels: map[string]string{strings.Repeat("n", tier.MaxLabelName): strings.Repeat("v", tier.MaxText)},
	}},
}

func limitsOf(all ...limits.Limit) *limits.Set {
	limits, err := limits.New(all)
	if err != nil {
		panic(err) // a few limits
	}
	return limits
}

func runSubjects(t *testing.T, f Fixture) {
	for key, s := range subjects {
		f.Put(t, s, digest(key))
	}
	several := tier.Subject{ID: "several", Tier: "starter"}
	f.Put(t, several, digest("first"), digest("second"))
	f.Put(t, several, digest("third"))
	for range 2 {
		for key, s := range subjects {
			want(t, f, byDigest(key), &s)
			want(t, f, tier.Key{ID: s.ID}, &s)
		}
		for _, key := range []string{"first", "second", "third"} {
			want(t, f, byDigest(key), &several)
		}
		want(t, f, byDigest("unknown"), nil)
		want(t, f, tier.Key{ID: "unknown"}, nil)
		// A digest is no id.
		want(t, f, tier.Key{ID: digest("plain")}, nil)
		want(t, f, tier.Key{ID: "key:" + digest("plain")}, nil)
	}
}

// runIDs proves that a source takes no character of an id for syntax.
func runIDs(t *testing.T, f Fixture) {
	good := []string{
		"a", "A", "0", "true", "null", "a b", "a  b", "a:b", "a:b:", ":", `"`, `a"b'c`, `\`, `\n`, "%", "%d%s", "100%", "a%20b", "a+b",
		"{a}", "{}", "*", "?", "[a-z]", "$1", "$$", "a;--", "');", "a,b", "../a", "/", "a&id=b", "a?b#c", "<a>", "@", "~", "key:", "a\u0020b!",
	}
	for _, id := range good {
		f.Put(t, tier.Subject{ID: id, Tier: "of " + id}, digest(id))
	}
	for _, id := range good {
		s := &tier.Subject{ID: id, Tier: "of " + id}
		want(t, f, byDigest(id), s)
		want(t, f, tier.Key{ID: id}, s)
	}
	// No subject has an invalid id. Looking one up is no error, because clients may
	// choose the id.
	for _, id := range []string{
		"é", "\n", "a\r\nb", "\x00", "a\x00", "\xff", " a", "a ", strings.Repeat("i", tier.MaxText+1), strings.Repeat("%", 100_000),
	} {
		want(t, f, tier.Key{ID: id}, nil)
	}
}

func runBadRecords(t *testing.T, f Fixture) {
	const planted = "sk-planted-where-no-key-belongs"
	f.Put(t, tier.Subject{ID: "good", Tier: "pro"}, digest("good"))
	f.Put(t, tier.Subject{ID: "broken", Tier: "pro"}, digest("broken"))
	f.Corrupt(t, digest("broken"))
	bad := map[string]tier.Subject{
		"unicode":  {ID: planted + "é"},
		"newline":  {ID: planted + "\n"},
		"too long": {ID: planted + strings.Repeat("i", tier.MaxText)},
		"tier":     {ID: "bad-tier", Tier: planted + "\n"},
		"label":    {ID: "bad-label", Extra: &tier.Extra{Labels: map[string]string{"a": planted + "\n"}}},
		"name":     {ID: "bad-name", Extra: &tier.Extra{Labels: map[string]string{"a b": ""}}},
	}
	for key, s := range bad {
		f.Put(t, s, digest(key))
	}
	for _, key := range []string{"unicode", "newline", "too long"} {
		want(t, f, tier.Key{ID: bad[key].ID}, nil)
	}
	bad["broken"] = tier.Subject{}
	for key := range bad {
		r, err := lookup(t, f, byDigest(key))
		if !errors.Is(err, tier.ErrBadRecord) {
			t.Errorf("%s: Lookup = %+v, %v; want a bad record", key, r, err)
		} else if strings.Contains(err.Error(), planted) {
			t.Errorf("%s: the error repeats what may be a key: %v", key, err)
		}
		together(t, f, byDigest(key), r, err)
	}
	// Other records are unaffected, and a corrected record is valid again.
	want(t, f, byDigest("good"), &tier.Subject{ID: "good", Tier: "pro"})
	f.Put(t, tier.Subject{ID: "bad-tier", Tier: "pro"})
	want(t, f, byDigest("tier"), &tier.Subject{ID: "bad-tier", Tier: "pro"})
}

func runChanges(t *testing.T, f Fixture) {
	s := tier.Subject{ID: "acme", Tier: "free"}
	f.Put(t, s, digest("a"), digest("b"))
	f.Put(t, tier.Subject{ID: "other", Tier: "pro"}, digest("c"))
	want(t, f, byDigest("a"), &s)

	s = tier.Subject{ID: "acme", Tier: "pro", Disabled: true, Extra: subjects["both"].Extra}
	f.Put(t, s)
	want(t, f, byDigest("a"), &s)
	want(t, f, byDigest("b"), &s)
	want(t, f, tier.Key{ID: "acme"}, &s)

	s = tier.Subject{ID: "acme", Tier: "pro"} // without its overrides and labels
	f.Put(t, s, digest("d"))
	for _, key := range []string{"a", "b", "d"} {
		want(t, f, byDigest(key), &s)
	}

	f.Remove(t, digest("a"))
	want(t, f, byDigest("a"), nil)
	want(t, f, byDigest("b"), &s)
	want(t, f, tier.Key{ID: "acme"}, &s)
	f.Put(t, s, digest("a"))
	want(t, f, byDigest("a"), &s)

	f.RemoveSubject(t, "acme")
	for _, key := range []string{"a", "b", "d"} {
		want(t, f, byDigest(key), nil)
	}
	want(t, f, tier.Key{ID: "acme"}, nil)
	want(t, f, byDigest("c"), &tier.Subject{ID: "other", Tier: "pro"})
}

// runDeadline proves that the context bounds a question.
func runDeadline(t *testing.T, f Fixture) {
	s := tier.Subject{ID: "acme", Tier: "pro"}
	f.Put(t, s, digest("a"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := f.Source.Lookup(over, byDigest("a")); err == nil {
		t.Errorf("Lookup with a context that is over = %+v, want an error", r)
	}
	want(t, f, byDigest("a"), &s)
	if f.Freeze == nil {
		return
	}
	f.Freeze(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if r, err := f.Source.Lookup(ctx, byDigest("a")); err == nil || errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("Lookup while the server is frozen = %+v, %v; want an error of the source", r, err)
			}
		})
	}
	finish(t, "Lookup while the server is frozen", &all)
	f.Thaw(t)
	eventually(t, f, byDigest("a"), &s)
}

// finish waits for goroutines.
func finish(t *testing.T, what string, all *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: no end within %v", what, patience)
	}
}

// runOutage proves that lookups fail while the server is away, and work again afterwards
// with the same source.
func runOutage(t *testing.T, f Fixture) {
	s := tier.Subject{ID: "acme", Tier: "pro"}
	f.Put(t, s, digest("a"))
	want(t, f, byDigest("a"), &s)
	for range 2 {
		f.Stop(t)
		for range 10 {
			r, err := lookup(t, f, byDigest("a"))
			if err == nil || errors.Is(err, tier.ErrBadRecord) {
				t.Errorf("Lookup while the server is stopped = %+v, %v; want an error of the source", r, err)
			}
		}
		f.Start(t)
		f.Put(t, s, digest("a"))
		eventually(t, f, byDigest("a"), &s)
		want(t, f, byDigest("unknown"), nil)
	}
}

// runLoad proves that each of many concurrent questions gets its own answer or an error,
// also while the server restarts.
func runLoad(t *testing.T, f Fixture) {
	for key, s := range subjects {
		f.Put(t, s, digest(key))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 2 {
		for key, s := range subjects {
			for k, want := range map[tier.Key]*tier.Subject{
				byDigest(key):         &s,
				{ID: s.ID}:            &s,
				byDigest("no " + key): nil,
			} {
				all.Go(func() {
					for ctx.Err() == nil {
						ask, cancel := context.WithTimeout(ctx, time.Second)
						r, err := f.Source.Lookup(ask, k)
						cancel()
						switch {
						case errors.Is(err, tier.ErrBadRecord):
							t.Errorf("Lookup(%+v): %v", k, err)
						case err != nil, f.Forgets && r.Subject == nil:
						default:
							if diff := cmp.Diff(want, r.Subject, cmpopts.EquateEmpty()); diff != "" {
								t.Errorf("Lookup(%+v): (-want +got)\n%s", k, diff)
							}
						}
					}
				})
			}
		}
	}
	plain := subjects["plain"]
	for range 3 {
		f.Stop(t)
		f.Start(t)
		for key, s := range subjects {
			f.Put(t, s, digest(key))
		}
		eventually(t, f, byDigest("plain"), &plain)
	}
	cancel()
	finish(t, "Lookup under load", &all)
	for key, s := range subjects {
		want(t, f, byDigest(key), &s)
	}
}

// runClose proves that a closed source answers no question, and that no lookup waits
// for it.
func runClose(t *testing.T, f Fixture) {
	f.Put(t, tier.Subject{ID: "acme", Tier: "pro"}, digest("a"))
	want(t, f, byDigest("a"), &tier.Subject{ID: "acme", Tier: "pro"})
	if f.Freeze != nil {
		f.Freeze(t)
		defer f.Thaw(t)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				// The lookup may fail while the source closes.
				if _, err := f.Source.Lookup(t.Context(), byDigest("a")); err != nil {
					return
				}
			}
		})
	}
	// Meanwhile the other lookups have begun to wait.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = f.Source.Lookup(ctx, byDigest("a")) // an error if the server is frozen
	if err := f.Source.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	finish(t, "Lookup while the source is closed", &all)
	if r, err := lookup(t, f, byDigest("a")); err == nil {
		t.Errorf("Lookup of a closed source = %+v, want an error", r)
	}
}
