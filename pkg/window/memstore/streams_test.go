package memstore

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/streamrecord"
)

// inFlight returns a check of a stream for one place of so many.
func inFlight(key string, stream window.StreamID, most uint64) window.Check {
	c := ofPolicy(window.InFlight, 1)
	c.Key, c.Stream, c.Limit.Hits = key, stream, most
	return c
}

// finish ends a stream.
func finish(t *testing.T, s *Store, stream window.StreamID, deny time.Duration) (released bool) {
	t.Helper()
	settled, err := s.End(t.Context(), window.Ending{Stream: stream, Deny: deny})
	if err != nil {
		t.Fatalf("End(%d): %v", stream, err)
	}
	return settled.Released
}

// TestTombstonesAreBounded ends ever new streams. What is known of their ends makes room for more.
// Full limits, and the streams that hold their places, stay.
func TestTombstonesAreBounded(t *testing.T) {
	s, _ := boundedStore(t, 64*4000)
	const most = 5
	for i := range window.StreamID(most) {
		take(t, s, inFlight("full", 1+i, most))
	}
	for i := range window.StreamID(20_000) {
		if finish(t, s, 1000+i, 10*time.Second) {
			t.Fatalf("stream %d held something", 1000+i)
		}
	}
	verify(t, s) // the bounds
	if stats := s.Stats(); stats.Evicted == 0 || stats.Refused > 0 {
		t.Errorf("%+v: want ends that were forgotten, and none refused", stats)
	}
	if d := take(t, s, inFlight("full", 99, most)); d[0].Allowed {
		t.Errorf("the full limit was forgotten: %+v", d)
	}
	for i := range window.StreamID(most) {
		if !finish(t, s, 1+i, 10*time.Second) {
			t.Errorf("stream %d holds nothing any more", 1+i)
		}
	}
	if d := take(t, s, inFlight("full", 98, most)); d[0].Remaining != most-1 {
		t.Errorf("after the ends: %+v", d)
	}
}

// TestStreamsThatHoldAreKept fills a store with full limits. It refuses more, and forgets none of
// them: every end gives its place back. Then there is room again.
func TestStreamsThatHoldAreKept(t *testing.T) {
	s, _ := boundedStore(t, 64*4000)
	var holding []window.StreamID
	for stream := window.StreamID(1); stream <= 3000; stream++ {
		var d [1]window.Decision
		c := inFlight(fmt.Sprint("full", stream), stream, 1)
		switch _, err := s.Take(t.Context(), window.MayWait, []window.Check{c}, d[:]); {
		case err == nil && d[0].Allowed:
			holding = append(holding, stream)
		case !errors.Is(err, ErrFull):
			t.Fatalf("stream %d: %+v, error %v, want %v", stream, d, err, ErrFull)
		}
	}
	verify(t, s)
	if stats := s.Stats(); stats.Evicted > 0 || stats.Refused == 0 || stats.Logs != 2*len(holding) {
		t.Errorf("%+v with %d streams: want two logs for each, none forgotten, and some refused", stats, len(holding))
	}
	for _, stream := range holding {
		if !finish(t, s, stream, 0) {
			t.Errorf("stream %d holds nothing any more", stream)
		}
	}
	if n := s.Len(); n != 0 {
		t.Errorf("%d logs after all ends, want none", n)
	}
	take(t, s, inFlight("full", 1, 1))
}

// TestLogsInFlightWithRoomMakeRoom: a limit in flight that has room is dropped for another one.
// Its streams end without an error, and come back.
func TestLogsInFlightWithRoomMakeRoom(t *testing.T) {
	s, now := boundedStore(t, roomFor(1000))
	const streams = 450
	for stream := window.StreamID(1); stream <= streams; stream++ {
		take(t, s, inFlight(fmt.Sprint("room", stream), stream, 100))
	}
	for i := range 3000 {
		*now += time.Millisecond
		take(t, s, check(fmt.Sprint("other", i), 2, 1))
	}
	verify(t, s)
	held := 0
	for stream := window.StreamID(1); stream <= streams; stream++ {
		if finish(t, s, stream, 0) {
			held++
		}
	}
	if held == streams || s.Stats().Evicted == 0 {
		t.Errorf("%d of %d streams hold something, %+v: want logs that were dropped", held, streams, s.Stats())
	}
	if d := take(t, s, inFlight("room1", 1, 100)); d[0].Remaining != 99 {
		t.Errorf("a stream whose log was dropped gets %+v", d)
	}
}

// TestLogsOfStreamsAreUsedAgain begins and ends streams whose keys have several lengths. The logs of
// ended streams serve the next ones: a shard keeps few of them, and none that is in use.
func TestLogsOfStreamsAreUsedAgain(t *testing.T) {
	s, now := testStore(t)
	key := func(stream window.StreamID) string { return strings.Repeat("k", 1+int(stream%7)*29) }
	stream := window.StreamID(0)
	for round := range 6 {
		first := stream
		for range 3000 {
			stream++
			take(t, s, inFlight(key(stream), stream, 10_000))
			i, hash := s.shardOfStream(stream)
			if got, want := cap(s.shards[i].stream(stream, hash).packed), streamBytes(streamrecord.HeadBytes+streamrecord.EntrySize(&window.Check{Key: key(stream)})); got != want {
				t.Fatalf("stream %d has %d bytes, want %d", stream, got, want)
			}
		}
		verify(t, s)
		for i := first + 1; i <= stream; i++ {
			deny := time.Duration(i%3) * time.Second
			if !finish(t, s, i, deny) {
				t.Fatalf("stream %d of round %d holds nothing", i, round)
			}
		}
		*now += 3 * time.Second
		s.Sweep()
		if verify(t, s); s.Len() != 0 {
			t.Fatalf("round %d: %d logs are left", round, s.Len())
		}
	}
	spares := 0
	for i := range s.shards {
		n := 0
		for l := s.shards[i].spare.first; l != nil; l = l.next {
			if n++; cap(l.packed) > maxSpareBytes {
				t.Errorf("a log of %d bytes is kept", cap(l.packed))
			}
		}
		if n != s.shards[i].spare.count || n > maxSpares {
			t.Errorf("%d logs are kept, counted as %d, want at most %d", n, s.shards[i].spare.count, maxSpares)
		}
		spares += n
	}
	if spares == 0 {
		t.Error("no log is kept")
	}
}

// TestRoomForAStreamThatIsKnown: a stream whose hold has expired comes back to a full store. The room
// for it is not what is known of it.
func TestRoomForAStreamThatIsKnown(t *testing.T) {
	s, now := boundedStore(t, roomFor(256))
	sh := &s.shards[0]
	free := 0
	for stream := window.StreamID(1); stream <= 100; stream++ {
		c := inFlight("k", stream, 9)
		c.Limit.Window = time.Second
		take(t, s, c)
		*now += 2 * time.Second
		for sh.within(sh.usual, 128) {
			free++
			hour := check(fmt.Sprint("free", free), 9, 1)
			hour.Limit.Window = time.Hour
			take(t, s, hour)
		}
		c.Key = "other"
		take(t, s, c)
		verify(t, s)
		if !finish(t, s, stream, 0) {
			t.Fatalf("stream %d holds nothing", stream)
		}
	}
}

// TestRoomForOneFlight: every bound holds for one check after the other, of streams that are new
// and of those that are known. None has more than its log and the stream has room for.
func TestRoomForOneFlight(t *testing.T) {
	for bound := range 2000 {
		s, _ := boundedStore(t, int64(bound))
		for stream := range window.StreamID(3) {
			for _, key := range []string{"a", strings.Repeat("b", 300), "c"} {
				c := []window.Check{inFlight(fmt.Sprint(key, stream), 1+stream, 1)}
				if _, err := s.Take(t.Context(), window.MayWait, c, make([]window.Decision, 1)); err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				verify(t, s)
			}
		}
	}
}

// TestTombstonesAreSmall: what is remembered of the end of a stream is not as long as the keys that
// it held.
func TestTombstonesAreSmall(t *testing.T) {
	s, _ := testStore(t)
	for stream := range window.StreamID(100) {
		take(t, s, inFlight(strings.Repeat("k", 1+10*int(stream)), 1+stream, 1))
		finish(t, s, 1+stream, time.Second)
		i, hash := s.shardOfStream(1 + stream)
		if got := cap(s.shards[i].stream(1+stream, hash).packed); got > maxSpareBytes {
			t.Fatalf("stream %d has ended, and has %d bytes", 1+stream, got)
		}
	}
	verify(t, s)
}

// TestFlightsLock: the store decides a check in flight, and notes an end, while the shard is locked.
func TestFlightsLock(t *testing.T) {
	var s *Store
	read := 0
	s = New(Options{SweepInterval: -1, MaxBytes: minShardBytes, Clock: func() time.Duration { // one shard
		read++
		if s.shards[0].mu.TryLock() {
			t.Error("the clock is read without the lock")
			s.shards[0].mu.Unlock()
		}
		return time.Minute
	}})
	defer s.Close()
	take(t, s, inFlight("k", 1, 3))
	take(t, s, inFlight("k", 2, 3), inFlight("l", 2, 3))
	finish(t, s, 1, 0)
	finish(t, s, 2, time.Second)
	if read != 7 {
		t.Errorf("the clock was read %d times, want once for each take, each end and each log of an end", read)
	}
}

// TestFlightWithoutAllocation: a stream that begins and ends where others have ended allocates
// nothing, whether or not its end is remembered.
func TestFlightWithoutAllocation(t *testing.T) {
	s, now := boundedStore(t, minShardBytes) // one shard
	stays := inFlight("k", 1, 9)
	stays.Limit.Window = time.Hour
	take(t, s, stays)
	c, d := []window.Check{inFlight("k", 2, 9)}, make([]window.Decision, 1)
	for _, deny := range []time.Duration{0, time.Second} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.Take(context.Background(), window.MayWait, c, d); err != nil || !d[0].Allowed {
				t.Fatalf("%+v, error %v", d, err)
			}
			if settled, err := s.End(context.Background(), window.Ending{Stream: 2, Deny: deny}); err != nil || !settled.Released {
				t.Fatalf("%+v, error %v", settled, err)
			}
			*now += 2 * time.Second
			s.Sweep()
		}); n > 0 {
			t.Errorf("denied for %v: %v allocations, want none", deny, n)
		}
	}
}

// TestVectorsInFlight plays the vectors of package window with Take and End: the answers and the
// bytes are theirs. A history ends at its first tombstone, which a store keeps with the stream and
// not in the log.
func TestVectorsInFlight(t *testing.T) {
	file, err := os.Open("../packed/testdata/vectors.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for dec := json.NewDecoder(z); ; {
		var v struct {
			Policy string
			Window int64
			Steps  []flightVector
		}
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if v.Policy != window.InFlight.String() {
			continue
		}
		s, now := testStore(t)
		digest, clock := sha256.New(), int64(0) // of the logs since the last digest of the vectors
		for i, step := range v.Steps {
			if step.Mode == "end" && step.Outcome == 0 && step.Deny > 0 {
				break
			}
			steps++
			clock += step.Clock
			*now = time.Duration(clock) * time.Microsecond
			if got, want := step.play(t, s, v.Window), step.decision(); got != want {
				t.Fatalf("step %d, %+v: got %+v, want %+v", i, step, got, want)
			}
			log := bytesOf(s, "k")
			fmt.Fprintf(digest, "%d:%s", len(log), log)
			if got := hex.EncodeToString(log); step.Value != "" && got != step.Value {
				t.Fatalf("step %d, %+v: the log is %s, want %s", i, step, got, step.Value)
			}
			if got := hex.EncodeToString(digest.Sum(nil)[:8]); step.Digest != "" {
				if got != step.Digest {
					t.Fatalf("step %d, %+v: the log is %x, or one since the last digest is wrong", i, step, log)
				}
				digest.Reset()
			}
		}
		verify(t, s)
	}
	if steps < 400 {
		t.Errorf("played %d steps, want at least 400", steps)
	}
}

// A flightVector is a step of the vectors; package window's test says what the fields mean.
type flightVector struct {
	Clock     int64           `json:"t"`
	Mode      string          `json:"m"`
	Cost      uint64          `json:"c"`
	Limit     uint64          `json:"l"`
	Stream    window.StreamID `json:"i"`
	Hold      int64           `json:"h"`
	Deny      int64           `json:"d"`
	Outcome   int             `json:"o"`
	Remaining uint64          `json:"n"`
	Retry     int64           `json:"r"`
	Unit      int64           `json:"u"`
	Reset     int64           `json:"e"`
	Digest    string          `json:"b"`
	Value     string          `json:"v"`
}

// play plays a step. The result of an end is in Allowed.
func (v *flightVector) play(t *testing.T, s *Store, win int64) window.Decision {
	t.Helper()
	if v.Mode == "end" {
		return window.Decision{Allowed: finish(t, s, v.Stream, 0)} // a stream may come back in the vectors
	}
	c := inFlight("k", v.Stream, v.Limit)
	c.Cost, c.Limit.Window = v.Cost, time.Duration(win)*time.Microsecond
	if v.Hold > 0 {
		c.Limit.Window = time.Duration(v.Hold) * time.Microsecond
	}
	for m := window.Enforce; m <= window.Refund; m++ {
		if m.String() == v.Mode {
			c.Mode = m
		}
	}
	d := take(t, s, c)[0]
	d.Unsettled = false // the vectors do not say
	return d
}

func (v *flightVector) decision() window.Decision {
	return window.Decision{
		Allowed: v.Outcome == 1, Never: v.Outcome == 2, Remaining: v.Remaining,
		RetryAfter: time.Duration(v.Retry) * time.Microsecond,
		UnitAfter:  time.Duration(v.Unit) * time.Microsecond,
		ResetAfter: time.Duration(v.Reset) * time.Microsecond,
	}
}

// bytesOf returns the bytes of a log in flight, or nil.
func bytesOf(s *Store, key string) []byte {
	id := window.LogID{Key: key, Policy: window.InFlight}
	shard, hash := s.shardOf(id)
	if l := s.shards[shard].find(id, hash); l != nil {
		return l.packed
	}
	return nil
}
