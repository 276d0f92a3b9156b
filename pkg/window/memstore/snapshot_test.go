package memstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/streamrecord"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/windowtest/reference"
)

// wall is a time of day at which stores are saved.
var wall = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func saved(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// clockOf returns the time of day at which a snapshot was saved.
func clockOf(b []byte) time.Time {
	if len(b) < len(snapshotMagic)+9 {
		return wall
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b[len(snapshotMagic)+1:])))
}

// loadAt loads a snapshot some time after it was saved, into a store whose clock source
// starts anywhere and is moved by the test.
func loadAt(t testing.TB, b []byte, later time.Duration, size int64) (*Store, *time.Duration, Loaded) {
	t.Helper()
	source := new(time.Duration)
	*source = 77 * time.Hour
	s, loaded, err := load(bytes.NewReader(b), Options{
		Clock: func() time.Duration { return *source }, SweepInterval: -1, MaxBytes: size,
	}, clockOf(b).Add(later))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	verify(t, s)
	return s, source, loaded
}

// TestSnapshot saves and loads a store again and again while it is used, beside
// one that is not interrupted: both answer alike.
func TestSnapshot(t *testing.T) {
	s, now := testStore(t)
	twin, twinNow := testStore(t)
	r := rand.New(rand.NewPCG(9, 10))
	windows := []time.Duration{win, time.Minute, 7 * 24 * time.Hour}
	passed := time.Duration(0)
	for round := range 6 {
		for range 5000 {
			pace := time.Duration(r.Int64N(int64(5 * time.Millisecond))).Truncate(time.Microsecond)
			*now += pace
			*twinNow += pace
			c := check(fmt.Sprint("k", r.IntN(60)), uint64(1+r.IntN(60)), uint64(r.IntN(4)))
			c.Limit.Window = windows[r.IntN(len(windows))]
			c.Mode = []window.Mode{window.Enforce, window.Enforce, window.Always, window.Refund}[r.IntN(4)]
			if c.Limit.Window == win {
				c.Precision = time.Duration(r.IntN(3)) * time.Millisecond
			}
			if diff := cmp.Diff(take(t, twin, c), take(t, s, c)); diff != "" {
				t.Fatalf("round %d, at %v: (-not interrupted +loaded)\n%s", round, *twinNow, diff)
			}
		}
		passed = time.Duration(round) * time.Second
		*twinNow += passed
		counts := s.Len()
		b := saved(t, s)
		var loaded Loaded
		s, now, loaded = loadAt(t, b, passed, 0)
		if got := s.Len(); got != loaded.Logs || loaded.Dropped != 0 || got < 30 || got+loaded.Expired > counts {
			t.Errorf("round %d: loaded %+v of %d, %d are there", round, loaded, counts, got)
		}
	}
}

// TestSnapshotPolicies saves logs of every policy. A store that was loaded some time later
// answers as one that was not interrupted.
func TestSnapshotPolicies(t *testing.T) {
	for _, later := range []time.Duration{0, time.Second, 7 * time.Second, 85 * time.Second} {
		s, now := testStore(t)
		*now = time.Duration(wall.UnixNano())
		start := wall.Unix() - 30
		var checks []window.Check
		for p := window.Sliding; p <= window.InFlight; p++ {
			c := check("k", 5, 2)
			c.Limit.Policy, c.Limit.Window = p, time.Minute
			switch p {
			case window.TokenBucket:
				c.Limit.Rate = 7
			case window.Calendar:
				c.Period = window.Period{Start: start, End: start + 60, Next: start + 120}
			case window.InFlight:
				c.Stream = 77
			default:
			}
			take(t, s, c)
			c.Stream *= 2 // another one
			checks = append(checks, c)
		}
		loaded, _, counts := loadAt(t, saved(t, s), later, 0)
		*now += later
		if counts.Logs != loaded.Len() || later == 0 && counts.Logs != len(checks)+1 { // the stream has a log too
			t.Errorf("%v later: loaded %+v, and %d are there", later, counts, loaded.Len())
		}
		for _, c := range checks {
			if diff := cmp.Diff(take(t, s, c), take(t, loaded, c)); diff != "" {
				t.Errorf("%v, %v later: (-not interrupted +loaded)\n%s", c.Limit.Policy, later, diff)
			}
		}
	}
}

// TestSnapshotTime proves how time goes on.
func TestSnapshotTime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		later time.Duration // on the clock on the wall
		wait  time.Duration // of a log that was used up 4 s before; zero: it has expired
	}{
		{"at once", 0, 6 * time.Second},
		{"after a second", time.Second, 5 * time.Second},
		{"a microsecond before it expires", 6*time.Second - time.Microsecond, time.Microsecond},
		{"when it has expired", 6 * time.Second, 0},
		{"set back: time stood still", -time.Hour, 6 * time.Second},
		{"before 1970", -100 * 365 * 24 * time.Hour, 6 * time.Second},
		{"after a century", 100 * 365 * 24 * time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, now := testStore(t)
			*now = time.Minute
			take(t, s, check("k", 1, 1))
			*now += 4 * time.Second
			b := saved(t, s)
			for range 2 { // the same file may be loaded twice
				s, source, loaded := loadAt(t, b, tt.later, 0)
				want := Loaded{Logs: 1}
				if tt.wait == 0 {
					want = Loaded{Expired: 1}
				}
				if loaded != want {
					t.Errorf("got %+v, want %+v", loaded, want)
				}
				if err := loads(t, saved(t, s)); err != nil {
					t.Errorf("saved again: %v", err)
				}
				if d := take(t, s, check("k", 1, 1))[0]; d.RetryAfter != tt.wait || d.Allowed != (tt.wait == 0) {
					t.Errorf("got %+v, want a wait of %v", d, tt.wait)
				}
				if tt.wait == 0 {
					continue
				}
				*source += tt.wait - time.Microsecond
				if take(t, s, check("k", 1, 1))[0].Allowed {
					t.Error("a microsecond early: got allowed")
				}
				*source += time.Microsecond
				if !take(t, s, check("k", 1, 1))[0].Allowed {
					t.Error("in time: got denied")
				}
			}
		})
	}
}

// TestSaveTakesTime proves that what passes during Save is not counted twice.
func TestSaveTakesTime(t *testing.T) {
	s, now := testStore(t)
	take(t, s, check("k", 1, 1))
	var b bytes.Buffer
	slow := writerFunc(func(p []byte) (int, error) {
		if b.Len() == 0 {
			*now = 3 * time.Second
		}
		return b.Write(p)
	})
	if _, err := s.Save(slow); err != nil {
		t.Fatal(err)
	}
	s, _, _ = loadAt(t, b.Bytes(), 5*time.Second, 0)
	if got := take(t, s, check("k", 1, 1))[0].RetryAfter; got != 5*time.Second {
		t.Errorf("five seconds after Save began: retry after %v, want 5s", got)
	}
	s, _, _ = loadAt(t, b.Bytes(), time.Second, 0)
	if got := take(t, s, check("k", 1, 1))[0].RetryAfter; got != 7*time.Second {
		t.Errorf("less than Save took: retry after %v, want 7s, as when it ended", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestLoadGoesOnLimiting proves that what a log must know for making room is kept.
func TestLoadGoesOnLimiting(t *testing.T) {
	s, _ := testStore(t)
	take(t, s, check("full", 2, 2))
	s, _, _ = loadAt(t, saved(t, s), 0, roomFor(1))
	if _, ok := tryTake(t, s, check("new", 2, 1)); ok {
		t.Error("a loaded log at its limit was dropped for a new one")
	}
	s, _ = testStore(t)
	take(t, s, check("half", 4, 2))
	s, _, _ = loadAt(t, saved(t, s), 0, roomFor(1))
	if _, ok := tryTake(t, s, check("new", 2, 1)); !ok {
		t.Error("a loaded log below its limit was not dropped for a new one")
	}
}

// TestSaveLeavesOutWhatExpired also shows that an empty store can be kept, and that
// Save says how much was written.
func TestSaveLeavesOutWhatExpired(t *testing.T) {
	s, now := testStore(t)
	empty := saved(t, s)
	take(t, s, check("k", 1, 1))
	*now = win / 2
	for i := range 100 {
		take(t, s, check(fmt.Sprint(i), 1, 1))
	}
	for _, step := range []struct {
		at   time.Duration
		logs int
	}{{win / 2, 101}, {win, 100}, {win + win/2, 0}} {
		*now = step.at
		if logs, err := s.Save(io.Discard); err != nil || logs != step.logs {
			t.Errorf("at %v: %d logs written, error %v, want %d", step.at, logs, err, step.logs)
		}
	}
	if got := saved(t, s); len(got) != len(empty) {
		t.Errorf("a snapshot of expired logs: got %d bytes, want %d", len(got), len(empty))
	}
	s, _, loaded := loadAt(t, empty, 0, 0)
	if got := s.Len(); got != 0 || loaded != (Loaded{}) {
		t.Errorf("an empty snapshot: got %+v and %d logs", loaded, got)
	}
}

func TestLoadRespectsBounds(t *testing.T) {
	s, _ := testStore(t)
	for i := range 100 {
		take(t, s, check(fmt.Sprint(i), 5, 5))
	}
	b := saved(t, s)
	s, _, loaded := loadAt(t, b, 0, 30*109+20)
	if want := (Loaded{Logs: 30, Dropped: 70}); loaded != want || s.Len() != 30 {
		t.Errorf("got %+v and %d logs, want %+v", loaded, s.Len(), want)
	}
}

// sample is a snapshot with logs of all kinds.
func sample(t testing.TB) []byte {
	s, now := testStore(t)
	*now = time.Minute
	for i := range 20 {
		*now += time.Millisecond
		c := check("ring", 100, 1)
		take(t, s, c)
		c.Limit.Window = 7 * 24 * time.Hour
		take(t, s, c, check(fmt.Sprint("small", i%3), 50, uint64(i+1)))
	}
	return saved(t, s)
}

// loads reports what Load says, and holds it to what it promises of errors.
func loads(t testing.TB, b []byte) error {
	t.Helper()
	s, _, err := load(bytes.NewReader(b), Options{SweepInterval: -1}, clockOf(b))
	if err == nil {
		s.Close()
		return nil
	}
	if s != nil || !errors.Is(err, ErrBadSnapshot) {
		t.Errorf("got a store: %t, and error %v, want one that wraps %q and no store", s != nil, err, ErrBadSnapshot)
	}
	return err
}

// TestCutSnapshots cuts a snapshot at every place and changes it at every place.
func TestCutSnapshots(t *testing.T) {
	good := sample(t)
	if err := loads(t, good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		want := "cut off"
		if n == 0 {
			want = "no snapshot: it is empty"
		}
		if err := loads(t, good[:n]); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the first %d of %d bytes: got error %v, want %q", n, len(good), err, want)
		}
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(good)
			bad[n] ^= flip
			if loads(t, bad) == nil {
				t.Fatalf("byte %d of %d changed by %02x: loaded", n, len(good), flip)
			}
		}
	}
	if err := loads(t, append(bytes.Clone(good), 0)); err == nil || !strings.Contains(err.Error(), "goes on after its end") {
		t.Errorf("a byte too many: got error %v", err)
	}
}

// A record of a snapshot that is written by hand.
type record struct {
	key    string
	micros uint64
	limit  uint32
	packed []byte
}

// craft writes a snapshot with a good checksum and whatever else.
func craft(version byte, clock uint64, records []record, count int, end uint64) []byte {
	b := append([]byte(snapshotMagic), version)
	b = binary.BigEndian.AppendUint64(b, clock)
	for _, r := range records {
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.key)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.packed)))
		b = binary.BigEndian.AppendUint64(b, r.micros)
		b = binary.BigEndian.AppendUint32(b, r.limit)
		b = append(append(b, r.key...), r.packed...)
	}
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(count))
	b = binary.BigEndian.AppendUint64(b, end)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// TestCorruptSnapshots has right checksums and wrong contents.
func TestCorruptSnapshots(t *testing.T) {
	logAt := func(clock int64, w time.Duration) []byte {
		c := check("", 5, 1)
		c.Limit.Window = w
		var d window.Decision
		return reference.Take(nil, clock, &c, &d)
	}
	const us = 10_000_000
	good := record{"k", us, 5, logAt(1000, win)}
	with := func(change func(*record)) []record {
		r := good
		change(&r)
		return []record{r}
	}
	late := logAt(1000, win)
	late[len(late)-8] += 2 // the time of its slot, by 33 s
	empty := logAt(1000, win)[:18]
	var holds []byte // two holds of a cost of 1
	for stream := range window.StreamID(2) {
		c := ofPolicy(window.InFlight, 1)
		c.Stream = stream + 1
		var state packed.State
		state.Look(holds, 1000, &c)
		state.Charge(&c)
		holds = state.Log()
	}
	flight := func(at int, to byte) []byte {
		r := record{"k", uint64(window.InFlight) << policyBits, 5, bytes.Clone(holds)}
		if at >= 0 {
			r.packed[at] = to
		}
		return craft(snapshotVersion, 1000, []record{r}, 1, 2000)
	}
	stream := func(packed ...byte) []byte {
		return craft(snapshotVersion, 1000, []record{{"12345678", uint64(streams) << policyBits, uint32(noLimit), packed}}, 1, 2000)
	}
	onceRecord := func(packed ...byte) []byte {
		return craft(snapshotVersion, 1000, []record{{"k", uint64(onceRecords)<<policyBits | 1<<55, uint32(noLimit), packed}}, 1, 2000)
	}
	for _, tt := range []struct {
		name string
		file []byte
		want string // in the error; empty: it is good
	}{
		{"good", craft(snapshotVersion, 1000, []record{good}, 1, 2000), ""},
		{"a stream with a long id", craft(snapshotVersion, 1000, []record{{"123456789", uint64(streams) << policyBits, uint32(noLimit), []byte{streamrecord.Ended, 7: 1}}}, 1, 2000), "of a stream cannot be"},
		{"newer", craft(snapshotVersion+1, 1000, nil, 0, 1000), "its version is 8, and this program reads 7 only"},
		{"older", craft(3, 1000, nil, 0, 1000), "version"},
		{"something else", []byte("REDIS0011" + strings.Repeat("x", 100)), "something else"},
		{"something else, shorter than a header", []byte("hello"), "no snapshot but something else"},
		{"something else, one byte", []byte("S"), "no snapshot but something else"},
		{"nothing", nil, "no snapshot: it is empty"},
		{"counts less", craft(snapshotVersion, 1000, []record{good}, 0, 2000), "it has 1 logs and says 0"},
		{"counts more", craft(snapshotVersion, 1000, []record{good}, 2, 2000), "it has 1 logs and says 2"},
		{"twice", craft(snapshotVersion, 1000, []record{good, good}, 2, 2000), "twice"},
		{"clock", craft(snapshotVersion, 1<<60, nil, 0, 1<<60), "cannot be"},
		{"ends before it begins", craft(snapshotVersion, 1000, nil, 0, 999), "ends at 999"},
		{"ends too late", craft(snapshotVersion, 1000, nil, 0, 1<<53), "ends at"},
		{"a log of the far future", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = logAt(1<<50, win) }), 1, 2000), "a log is as of"},
		{"no log", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = []byte("log") }), 1, 2000), "not a log"},
		{"no bytes", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = nil }), 1, 2000), "not a log"},
		{"an entry of the future", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = late }), 1, 2000), "later than can be"},
		{"a log without entries", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = empty }), 1, 2000), ""},
		{"another unit", craft(snapshotVersion, 1000, with(func(r *record) { r.packed = logAt(1000, 7*24*time.Hour) }), 1, 2000), "in units of 1ms cannot be of a window of 10s"},
		{"a window too short", craft(snapshotVersion, 1000, with(func(r *record) { r.micros = 1 }), 1, 2000), "shorter"},
		{"another policy than its bytes", craft(snapshotVersion, 1000, with(func(r *record) { r.micros |= uint64(window.Fixed) << policyBits }), 1, 2000), "cannot be one of fixed"},
		{"an unknown policy", craft(snapshotVersion, 1000, with(func(r *record) { r.micros |= 14 << policyBits }), 1, 2000), "policy 14"},
		{"in flight", flight(-1, 0), ""},
		{"in flight, another sum", flight(15, 3), "the costs of 2 holds are 2, and the header says 3 of 2"},
		{"in flight, another cost", flight(58+20, 9), "the costs of 2 holds are 10, and the header says 2 of 2"},
		{"in flight, the first ends last", flight(58+13, 255), "before the one before"},
		{"in flight, one stream twice", flight(58+21+7, 1), ""},
		{"in flight, no stream", flight(58+7, 0), "is of no stream"},
		{"in flight, torn", craft(snapshotVersion, 1000, []record{{"k", uint64(window.InFlight) << policyBits, 5, holds[:99]}}, 1, 2000), "99 bytes are not a log of holds"},
		{"in flight, an end too late", flight(58+21+8, 9), "ends too late"},
		{"in flight, with a window", craft(snapshotVersion, 1000, []record{{"k", uint64(window.InFlight)<<policyBits | 1, 5, holds}}, 1, 2000), "has a window of 1 us"},
		{"a stream", stream(0xA6, 0, 0, 0, 0, 0, 0, 9, 0, 5, 0, 0, 0, 1, 'k'), ""},
		{"a stream that has ended", stream(0xA7, 0, 0, 0, 0, 0, 0, 9), ""},
		{"a stream of another kind", stream(0xA8, 0, 0, 0, 0, 0, 0, 9), "what it says of a stream cannot be"},
		{"a stream, torn", stream(0xA6, 0, 0, 0, 0, 0, 0), "what it says of a stream cannot be"},
		{"a stream, a key is torn", stream(0xA6, 0, 0, 0, 0, 0, 0, 9, 0, 5, 0, 0, 0, 2, 'k'), "what it says of a stream cannot be"},
		{"a stream, the length of a key is torn", stream(0xA6, 0, 0, 0, 0, 0, 0, 9, 0, 5, 0, 0, 0), "what it says of a stream cannot be"},
		{"a stream that ends too late", stream(0xA6, 255, 0, 0, 0, 0, 0, 9), "what it says of a stream cannot be"},
		{"an idempotency record", onceRecord(0xA8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0), ""},
		{"an idempotency record of another kind", onceRecord(0xA7, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0), "an idempotency record cannot be"},
		{"an idempotency record, cut off", onceRecord(0xA8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1), "an idempotency record cannot be"},
		{"an idempotency record that ends too late", onceRecord(0xA8, 255, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0), "an idempotency record cannot be"},
		{"a window too long", craft(snapshotVersion, 1000, with(func(r *record) { r.micros = 1 << 55 }), 1, 2000), "cannot be"},
	} {
		err := loads(t, tt.file)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestSaveAndLoadTellOfBrokenFiles(t *testing.T) {
	s, _ := testStore(t)
	take(t, s, check("k", 1, 1))
	good := saved(t, s)
	broken := errors.New("the disk is gone")
	for n := range good {
		left := n
		_, err := s.Save(writerFunc(func(p []byte) (int, error) {
			if len(p) > left {
				return left, broken
			}
			left -= len(p)
			return len(p), nil
		}))
		if !errors.Is(err, broken) {
			t.Fatalf("Save to a file of %d bytes: got error %v, want %q", n, err, broken)
		}
		_, _, err = load(io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(broken)), Options{}, wall)
		if !errors.Is(err, broken) || errors.Is(err, ErrBadSnapshot) {
			t.Fatalf("Load of a file that breaks after %d bytes: got error %v, want %q", n, err, broken)
		}
	}
}

// TestLengthsAreNotBelieved loads a file that says it has gigabytes.
func TestLengthsAreNotBelieved(t *testing.T) {
	b := append([]byte(snapshotMagic), snapshotVersion)
	b = append(b, make([]byte, 8)...)
	for _, lengths := range [][2]uint32{{1<<32 - 1, 10}, {1, 1<<32 - 1}} {
		lie := binary.BigEndian.AppendUint32(bytes.Clone(b), lengths[0])
		lie = binary.BigEndian.AppendUint32(lie, lengths[1])
		lie = binary.BigEndian.AppendUint64(lie, 10_000_000)
		lie = append(lie, make([]byte, 100)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if loads(t, lie) == nil {
			t.Error("loaded")
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("lengths %d: loading takes %d bytes", lengths, got)
		}
	}
}

// FuzzLoad takes any bytes, as they are and as a file with a right checksum. What
// can be loaded can be used, saved and loaded again.
func FuzzLoad(f *testing.F) {
	good := sample(f)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(snapshotMagic))
	f.Add(craft(snapshotVersion, 0, nil, 0, 0))
	f.Add(craft(snapshotVersion, 1000, []record{{"k", 10_000_000, 5, good[:20]}}, 1, 2000))
	f.Add([]byte{})
	for p := window.Sliding; p <= window.InFlight; p++ {
		r := recordOf(f, p, 2)
		if p == window.InFlight {
			r.micros = uint64(p) << policyBits
		}
		f.Add(r.file())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = loads(t, b)
		if len(b) < 4 {
			return
		}
		b = binary.BigEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], crc32.MakeTable(crc32.Castagnoli)))
		if loads(t, b) != nil {
			return
		}
		s, _, loaded := loadAt(t, b, 0, 0)
		if got := s.Len(); got != loaded.Logs {
			t.Errorf("%d logs, said %d", got, loaded.Logs)
		}
		for i := range s.shards {
			for l := range s.shards[i].all() {
				if l.ofStream() {
					continue
				}
				c := withKey(l.key, l.id().Policy, 1)
				c.Mode = window.Observe
				switch c.Limit.Policy {
				case window.InFlight: // its log has no window
				case window.Calendar:
					now := int64(s.clock() / time.Second)
					c.Period = window.Period{Start: now, End: now + 60, Next: now + 120}
				default:
					c.Limit.Window = l.id().Window
				}
				take(t, s, c)
			}
		}
		s.Sweep()
		verify(t, s)
		if err := loads(t, saved(t, s)); err != nil {
			t.Errorf("saved again: %v", err)
		}
	})
}

// all returns the logs of a shard, which must not change meanwhile.
func (sh *shard) all() map[*log]struct{} {
	all := make(map[*log]struct{})
	for b := range sh.buckets {
		for l := *sh.bucket(b); l != nil; l = l.next {
			all[l] = struct{}{}
		}
	}
	return all
}
