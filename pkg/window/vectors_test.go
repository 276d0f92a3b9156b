package window

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/vectors.jsonl.gz and docs/window.md anew; only commit what you understand")

// vectorsFile holds histories with every answer and the bytes after every write, for
// other implementations of the log: one JSON object a line, gzipped.
const vectorsFile = "testdata/vectors.jsonl.gz"

// A vector is one history on one log, which is empty at first. All times are
// microseconds.
type vector struct {
	Name   string       `json:"name"`
	Window int64        `json:"window"`
	Steps  []vectorStep `json:"steps"`
}

type vectorStep struct {
	Clock     int64  `json:"t"`
	Mode      string `json:"m,omitempty"` // enforce if missing
	Cost      uint64 `json:"c"`
	Limit     uint64 `json:"l"`
	Precision int64  `json:"p,omitempty"`
	Ahead     int64  `json:"a,omitempty"` // by how much later than now a charge is recorded

	Outcome   int    `json:"o"` // 0 denied, 1 allowed, 2 never
	Remaining uint64 `json:"n"`
	Retry     int64  `json:"r,omitempty"`
	Unit      int64  `json:"u,omitempty"`
	Reset     int64  `json:"e,omitempty"`
	// Log is what the log's bytes are if they have changed: themselves in
	// hexadecimal up to vectorBytes, a digest above. Bytes 13 to 17, the expiry
	// that only Redis writes, are zero.
	Log string `json:"b,omitempty"`
}

const vectorBytes = 144

// vectorLog tells a log's bytes for a vector: "" if they are as before.
func vectorLog(before, after []byte) string {
	if bytes.Equal(before, after) {
		return ""
	}
	if len(after) <= vectorBytes {
		return hex.EncodeToString(after)
	}
	digest := sha256.Sum256(after)
	return "sha256:" + hex.EncodeToString(digest[:8]) // its first 8 bytes
}

// newVectorStep tells a step that was made.
func newVectorStep(clock int64, c *Check, ahead time.Duration, d Decision, before, after []byte) vectorStep {
	s := vectorStep{
		Clock: clock, Cost: c.Cost, Limit: c.Limit.Hits, Precision: c.Precision.Microseconds(), Ahead: ahead.Microseconds(),
		Remaining: d.Remaining, Retry: d.RetryAfter.Microseconds(), Unit: d.UnitAfter.Microseconds(), Reset: d.ResetAfter.Microseconds(),
		Log: vectorLog(before, after),
	}
	if c.Mode != Enforce {
		s.Mode = c.Mode.String()
	}
	switch {
	case d.Allowed:
		s.Outcome = 1
	case d.Never:
		s.Outcome = 2
	}
	return s
}

// check returns what a step asks.
func (s vectorStep) check(win int64) *Check {
	c := &Check{
		Limit:     Limit{Hits: s.Limit, Window: time.Duration(win) * time.Microsecond},
		Cost:      s.Cost,
		Precision: time.Duration(s.Precision) * time.Microsecond,
	}
	for m := range modeNames {
		if modeNames[m] == s.Mode {
			c.Mode = Mode(m)
		}
	}
	return c
}

// TestVectors replays the file. With -update it is made anew from the random
// generators, at a fixed seed, compared with the naive log like all of theirs.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	f, err := os.Open(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > 400_000 {
		t.Errorf("%s: %v, or larger than it should be", vectorsFile, err)
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	met := make(map[string]int)
	for dec := json.NewDecoder(z); ; {
		var v vector
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		replay(t, &v, met)
	}
	t.Logf("%v", met)
	for _, what := range []string{
		"small", "ring", "grown", "shrunk", "small again", "moved", "clock back", "denied", "never", "merged",
		"ms", "precision", "enforce", "any", "observe", "always", "refund", "debt", "sum wraps", "time wraps", "ahead",
	} {
		if met[what] == 0 {
			t.Errorf("no vector has %q", what)
		}
	}
}

// replay compares one history with the log and counts what it meets.
func replay(t *testing.T, v *vector, met map[string]int) {
	t.Helper()
	var log []byte
	for i, s := range v.Steps {
		before := append([]byte(nil), log...)
		c := s.check(v.Window)
		var d Decision
		ahead := time.Duration(s.Ahead) * time.Microsecond
		log = takeAhead(log, s.Clock, c, ahead, &d)
		if got := newVectorStep(s.Clock, c, ahead, d, before, log); got != s {
			t.Fatalf("%s, step %d: got\n%+v, want\n%+v", v.Name, i, got, s)
		}
		met["steps"]++
		met[c.Mode.String()]++
		if i > 0 && s.Clock < v.Steps[i-1].Clock {
			met["clock back"]++
		}
		if s.Outcome != 1 {
			met[[]string{"denied", "", "never"}[s.Outcome]]++
		}
		if s.Log != "" {
			meetWrite(before, log, c, met)
			if ahead > 0 && c.Mode != Refund {
				met["ahead"]++
			}
		}
	}
}

// meetWrite counts what a write was.
func meetWrite(before, after []byte, c *Check, met map[string]int) {
	is, err := Decode(after)
	if err != nil {
		met["not a log"]++
		return
	}
	was, err := Decode(before)
	count := func(what string, yes bool) {
		if yes {
			met[what]++
		}
	}
	count("ring", is.Ring)
	count("small", !is.Ring)
	count("ms", is.Unit == time.Millisecond)
	count("precision", c.Precision > 0)
	count("debt", is.Used() > c.Limit.Hits)
	if err != nil {
		return
	}
	count("small again", was.Ring && !is.Ring)
	count("grown", is.Ring && is.Capacity > was.Capacity)
	count("shrunk", was.Ring && is.Ring && is.Capacity < was.Capacity)
	count("moved", is.Ring && after[atHead+3] != before[atHead+3])
	count("merged", len(is.Entries) == len(was.Entries) && is.Used() > was.Used())
	count("sum wraps", is.Base < was.Base)
	count("time wraps", int64(was.Clock/was.Unit)>>40 != int64(is.Clock/is.Unit)>>40)
}

func writeVectors(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(z)
	r := rand.New(rand.NewPCG(5, 4))
	for _, kind := range []struct {
		name  string
		h     history
		steps int
	}{{"dense", dense, 3000}, {"rings", rings, 13_000}, {"dense, ahead", ahead(dense), 1000}, {"rings, ahead", ahead(rings), 2000}} {
		for made := 0; made < kind.steps; {
			v := vector{Name: kind.name}
			kind.h(r, func(win time.Duration) *pair {
				p := newPair(t, win)
				v.Window = win.Microseconds()
				var before []byte
				p.after = func(clock int64, c *Check, ahead time.Duration, d Decision, log []byte) {
					whole := *c
					whole.Precision = time.Duration(ceilMicros(c.Precision)) * time.Microsecond
					v.Steps = append(v.Steps, newVectorStep(clock, &whole, ahead, d, before, log))
					before = append(before[:0], log...)
				}
				return p
			})
			made += len(v.Steps)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(vectorsFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorsFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
