package redisstore

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/ending"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

// vector and vectorStep are what the file holds; package window's test says what
// the fields mean.
type vector struct {
	Name   string       `json:"name"`
	Policy string       `json:"policy"`
	Window int64        `json:"window"`
	Steps  []vectorStep `json:"steps"`
}

type vectorStep struct {
	Clock     int64  `json:"t"`
	Mode      string `json:"m"`
	Cost      uint64 `json:"c"`
	Limit     uint64 `json:"l"`
	Precision int64  `json:"p"`
	Ahead     int64  `json:"a"`
	Rate      uint32 `json:"q"`

	Period *[3]int64 `json:"s"`

	Stream window.StreamID `json:"i"`
	Hold   int64           `json:"h"`
	Deny   int64           `json:"d"`

	Outcome   int    `json:"o"`
	Remaining uint64 `json:"n"`
	Retry     int64  `json:"r"`
	Unit      int64  `json:"u"`
	Reset     int64  `json:"e"`
	Digest    string `json:"b"`
	Value     string `json:"v"`
}

func (s *vectorStep) check(key string, v *vector) *window.Check {
	c := &window.Check{
		Key:       key,
		Limit:     window.Limit{Hits: s.Limit, Window: time.Duration(v.Window) * time.Microsecond, Rate: s.Rate},
		Cost:      s.Cost,
		Precision: time.Duration(s.Precision) * time.Microsecond,
	}
	for m := window.Enforce; m <= window.Refund; m++ {
		if m.String() == s.Mode {
			c.Mode = m
		}
	}
	for _, p := range counting {
		if p.String() == v.Policy {
			c.Limit.Policy = p
		}
	}
	if v.Policy == window.InFlight.String() {
		c.Limit.Policy, c.Stream = window.InFlight, s.Stream
	}
	if s.Hold > 0 {
		c.Limit.Window = time.Duration(s.Hold) * time.Microsecond
	}
	if s.Period != nil {
		c.Period = window.Period{Start: s.Period[0], End: s.Period[1], Next: s.Period[2]}
	}
	return c
}

func (s *vectorStep) ahead() time.Duration { return time.Duration(s.Ahead) * time.Microsecond }

func (s *vectorStep) decision() window.Decision {
	return window.Decision{
		Allowed:    s.Outcome == 1,
		Never:      s.Outcome == 2,
		Remaining:  s.Remaining,
		RetryAfter: time.Duration(s.Retry) * time.Microsecond,
		UnitAfter:  time.Duration(s.Unit) * time.Microsecond,
		ResetAfter: time.Duration(s.Reset) * time.Microsecond,
	}
}

// readVectors calls f for every history of the file.
func readVectors(t testing.TB, f func(v *vector)) {
	t.Helper()
	file, err := os.Open("../packed/testdata/vectors.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(z); ; {
		var v vector
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range v.Steps[1:] {
			v.Steps[i+1].Clock += v.Steps[i].Clock
		}
		f(&v)
	}
}

const (
	atMark   = 8  // the byte of a value of the other policies that only Redis has
	atExpiry = 13 // five bytes of a log that only Redis has
)

// withoutExpiry returns a log as Go would have it.
func withoutExpiry(log []byte) []byte {
	if len(log) == 0 {
		return nil
	}
	log = append([]byte(nil), log...)
	if log[0] >= 0xa0 {
		log[atMark] = 0
	} else {
		clear(log[atExpiry : atExpiry+5])
	}
	return log
}

// told compares the logs of one key with those of a history.
type told struct{ digest hash.Hash } // of the logs since the last digest of the history

// compare returns what is wrong with the log after a step. It must be called for every step.
func (o told) compare(s *vectorStep, log []byte) (problem string) {
	log = withoutExpiry(log)
	fmt.Fprintf(o.digest, "%d:%s", len(log), log)
	sum := hex.EncodeToString(o.digest.Sum(nil)[:8])
	switch {
	case s.Value != "" && hex.EncodeToString(log) != s.Value:
		return fmt.Sprintf("the log\ngot  %x\nwant %s", log, s.Value)
	case s.Digest != "" && sum != s.Digest:
		return fmt.Sprintf("the log, or one since the last digest\ngot  %x, digest %s\nwant digest %s", log, sum, s.Digest)
	case s.Digest != "":
		o.digest.Reset()
	}
	return ""
}

// TestVectors proves that the script decides and writes what package window
// does: all answers and all bytes of its test vectors.
func TestVectors(t *testing.T) {
	r := newRig(t)
	histories, steps, brief := 0, 0, 0
	readVectors(t, func(v *vector) {
		key := fmt.Sprintf("v%d", histories)
		histories++
		logs := told{sha256.New()}
		for i := range v.Steps {
			s := &v.Steps[i]
			steps++
			var got seen
			check := s.check(key, v)
			if s.Mode == "end" {
				got = r.drop(s.Clock, check, time.Duration(s.Deny)*time.Microsecond)
			} else {
				var before []byte
				if check.Stream != 0 {
					before, _ = r.client.Get(t.Context(), string(script.AppendKey(nil, "", check.Log()))).Bytes()
				}
				got = r.take(s.Clock, check, s.ahead())
				if check.Stream != 0 && !holds(before, check.Stream) {
					brief += r.wantSameOfNew(s.Clock, check, before, got)
				}
				if v.Policy == window.InFlight.String() && got.decision.Allowed {
					got.decision.RetryAfter = 0 // says whether the call made a hold
				}
			}
			got.decision.Cut = false // the vectors do not have it
			if got.decision != s.decision() || got.corrupt {
				t.Fatalf("%s %s, step %d, %+v:\ngot  %+v, corrupt %t\nwant %+v", v.Name, key, i, *s, got.decision, got.corrupt, s.decision())
			}
			if problem := logs.compare(s, got.log); problem != "" {
				t.Fatalf("%s %s, step %d, %+v: %s", v.Name, key, i, *s, problem)
			}
			if got.log != nil && got.ttl <= 0 {
				t.Fatalf("%s %s, step %d: the key has no expiry: %v", v.Name, key, i, got.ttl)
			}
		}
	})
	if steps < 25_000 {
		t.Errorf("%d steps in %d histories, want all of more than 25,000", steps, histories)
	}
	if brief < 60 {
		t.Errorf("%d steps had a long log and a new stream, want at least 60", brief)
	}
}

// holds reports whether a stream has a hold in a log.
func holds(log []byte, stream window.StreamID) bool {
	contents, _ := packed.Decode(log)
	return slices.ContainsFunc(contents.Holds, func(h packed.Hold) bool { return h.Stream == stream })
}

// wantSameOfNew gives a check to copies of its log, and says in both ways that its stream holds
// nothing there: an unknown stream with its own value, and the flag of a cluster. The answers
// and the bytes must be as without that. It returns 1 if the log has more holds than are read
// first.
func (r *rig) wantSameOfNew(clock int64, c *window.Check, before []byte, want seen) (brief int) {
	r.t.Helper()
	other := *c
	other.Key = "copy of " + c.Key
	key := string(script.AppendKey(nil, "", other.Log()))
	streams := "streams of " + c.Key + "{"
	for _, names := range []string{streams, ""} {
		ahead := time.Duration(0)
		if names == "" {
			ahead = ending.NewStream * time.Microsecond
		}
		if err := r.client.Set(r.t.Context(), key, before, time.Hour).Err(); err != nil {
			r.t.Fatal(err)
		}
		got := r.takeNoting(clock, &other, ahead, names)
		if got.decision != want.decision || !bytes.Equal(got.log, want.log) || got.corrupt {
			r.t.Fatalf("%+v at %d, a new stream, noted %q:\ngot  %+v\nwant %+v", *c, clock, names, got, want)
		}
		if late := got.ttl - want.ttl; !bytes.Equal(before, got.log) && late.Abs() > 10*time.Second {
			r.t.Fatalf("%+v at %d, a new stream, noted %q: the key lives for %v, want %v", *c, clock, names, got.ttl, want.ttl)
		}
	}
	noted := r.client.Del(r.t.Context(), fmt.Sprintf("%s%016x%s", streams, uint64(c.Stream), "}:s")).Val() == 1
	if made := want.decision.Allowed && want.decision.RetryAfter > 0; made != noted && c.Mode != window.Always {
		r.t.Fatalf("%+v at %d: the stream is noted: %t, want %t", *c, clock, noted, made)
	}
	if len(before) > 557 {
		return 1
	}
	return 0
}
