package packed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// sample returns a log of n entries at second 1, 2, ... of cost 1, 2, ...
func sample(tb testing.TB, n int, win time.Duration) []byte {
	tb.Helper()
	var log []byte
	for i := range int64(n) {
		c := &window.Check{Limit: window.Limit{Hits: 1_000_000, Window: win}, Cost: uint64(i + 1)}
		var d window.Decision
		if log = take(log, (i+1)*1_000_000, c, &d); !d.Allowed {
			tb.Fatalf("charge %d: got %+v", i, d)
		}
	}
	return log
}

func TestDecode(t *testing.T) {
	for _, n := range []int{1, 2, 13, 14, 100} {
		for _, win := range []time.Duration{time.Hour, window.MaxWindow} {
			c, err := Decode(sample(t, n, win))
			if err != nil {
				t.Fatalf("%d entries, window %v: got error %v", n, win, err)
			}
			for i, e := range c.Entries {
				if want := (Entry{time.Duration(i+1) * time.Second, uint32(i + 1)}); e != want {
					t.Errorf("entry %d of %d, window %v: got %+v, want %+v", i, n, win, e, want)
				}
			}
			if got, want := c.Used(), uint64(n*(n+1)/2); len(c.Entries) != n || got != want {
				t.Errorf("%d entries: got %d of cost %d, want cost %d", n, len(c.Entries), got, want)
			}
			if c.Ring != (n > 13) || c.Clock != time.Duration(n)*time.Second || c.Capacity < n {
				t.Errorf("%d entries: got %+v", n, c)
			}
		}
	}
}

// TestDecodeRefuses breaks a small log and a ring in one way each.
func TestDecodeRefuses(t *testing.T) {
	small, ring := sample(t, 3, time.Hour), sample(t, 40, time.Hour)
	const bad = "bytes contradicts itself"
	for _, tt := range []struct {
		name  string
		log   []byte
		spoil func(b []byte) []byte
		want  string // part of the error
	}{
		{"no bytes", nil, func([]byte) []byte { return nil }, "no bytes"},
		{"text", nil, func([]byte) []byte { return []byte("12 or anything else that is stored there") }, "kind 0x31 is unknown"},
		{"another version", small, func(b []byte) []byte { b[0] = 0xa0; return b }, "kind 0xa0 is unknown"},
		{"a flag of later", small, func(b []byte) []byte { b[0] |= 4; return b }, "kind 0x94 is unknown"},
		{"receipt", small, func(b []byte) []byte { b[0] = 0xa8; return b }, "it is an idempotency record of charge_once"},
		{"stream", small, func(b []byte) []byte { b[0] = 0xa7; return b }, "it says what a stream in flight holds"},
		{"short", small, func(b []byte) []byte { return b[:17] }, bad},
		{"clock", small, func(b []byte) []byte { b[1] = 0x80; return b }, bad},
		{"torn slot", small, func(b []byte) []byte { return b[:len(b)-1] }, bad},
		{"too many slots", small, func(b []byte) []byte { return append(b, make([]byte, 11*9)...) }, bad},
		{"no cost", small, func(b []byte) []byte { copy(b[18+9+5:], b[18+5:18+9]); return b }, "slot 1 has no cost"},
		{"time", small, func(b []byte) []byte { copy(b[18+9:], b[18:18+5]); return b }, "slot 1 is not later"},
		{"sums", small, func(b []byte) []byte { binary.BigEndian.PutUint32(b[18+9+5:], 0); return b }, "wrap within the log at slot 1"},

		{"short ring", ring, func(b []byte) []byte { return b[:130] }, bad},
		{"torn ring", ring, func(b []byte) []byte { return b[:len(b)-1] }, bad},
		{"long ring", ring, func(b []byte) []byte { return append(b, 0) }, bad},
		{"head", ring, func(b []byte) []byte { b[30] = 49; return b }, bad},
		{"count", ring, func(b []byte) []byte { b[34] = 50; return b }, bad},
		// An int of 32 bits would hold them as numbers below zero.
		{"large head", ring, func(b []byte) []byte { b[27] = 0x80; return b }, bad},
		{"large count", ring, func(b []byte) []byte { b[31] = 0x80; return b }, bad},
		{"copies", ring, func(b []byte) []byte { b[40] = 11; return b }, bad},
		{"skip", ring, func(b []byte) []byte { b[39] = 10; return b }, bad},
		{"copies of nothing", ring, func(b []byte) []byte { b[34] = 9; return b }, bad},
		{"a copy differs", ring, func(b []byte) []byte { b[41+9*9]++; return b }, "the copy of slot 9 differs"},
		{"newest", ring, func(b []byte) []byte { copy(b[18:], b[41:50]); return b }, "slot 39"},
	} {
		_, err := Decode(tt.spoil(slices.Clone(tt.log)))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, ErrNotLog) {
			t.Errorf("%s: got error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-0s", time.Microsecond: "+1µs", -10500 * time.Millisecond: "-10.5s", 24 * time.Hour: "+1d",
		-720 * time.Hour: "-30d", 25*time.Hour + time.Millisecond: "+1d1h0m0.001s", -24*time.Hour - time.Second: "-1d1s",
	} {
		if got := relative(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestContentsString(t *testing.T) {
	log := take(nil, 1_700_000_000_000_000, &window.Check{Limit: window.Limit{Hits: 9, Window: time.Minute}, Cost: 2}, new(window.Decision))
	log = take(log, 1_700_000_010_500_000, &window.Check{Limit: window.Limit{Hits: 9, Window: time.Minute}, Cost: 3, Precision: time.Second}, new(window.Decision))
	putExpiry(log, 1_700_000_071)
	c, err := Decode(log)
	if err != nil {
		t.Fatal(err)
	}
	want := `small log, 36 bytes, times in 1µs
clock    2023-11-14T22:13:30.5Z
expiry   2023-11-14T22:14:31Z
entries  2 of 13, cost 5, sums from 0
  -10.5s  2
  +500ms  3
`
	if got := c.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// putExpiry writes what only Redis's script writes.
func putExpiry(b []byte, second uint64) {
	b[atExpiry] = byte(second >> 32)
	binary.BigEndian.PutUint32(b[atExpiry+1:], uint32(second))
}

// TestExpiryIsKept proves that no write loses what another store put there.
func TestExpiryIsKept(t *testing.T) {
	log := sample(t, 3, time.Hour)
	putExpiry(log, 1<<40-2) // with a mark
	for i := range int64(60) {
		log = take(log, i*100_000_000, &window.Check{Limit: window.Limit{Hits: 1000, Window: time.Hour}, Cost: 1}, new(window.Decision))
		if c, err := Decode(log); err != nil || c.ExpirySecond != 1<<32-2 || log[atExpiry] != 255 {
			t.Fatalf("write %d: got %d, %v", i, c.ExpirySecond, err)
		}
	}
}

// TestCorrupt proves that bytes of something else are an empty log, are reported,
// and are left alone.
func TestCorrupt(t *testing.T) {
	ring := sample(t, 40, time.Hour)
	for name, b := range map[string][]byte{
		"text":         []byte("hello, this is not a log"),
		"short":        {0x90},
		"other unit":   sample(t, 3, window.MaxWindow),
		"torn ring":    ring[:len(ring)-1],
		"another kind": {0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17},
	} {
		before := slices.Clone(b)
		var v View
		v.Look(b, 1_000_000, time.Hour)
		if !v.Corrupt() || v.Used() != 0 || v.Log() != nil {
			t.Errorf("%s: got corrupt %t, used %d, log %x", name, v.Corrupt(), v.Used(), v.Log())
		}
		c := &window.Check{Limit: window.Limit{Hits: 5, Window: time.Hour}, Cost: 2}
		v.Charge(c)
		if !bytes.Equal(b, before) {
			t.Errorf("%s: a charge wrote to bytes that are not a log", name)
		}
		if got, err := Decode(v.Log()); err != nil || got.Used() != 2 {
			t.Errorf("%s: after a charge: got %+v, %v", name, got, err)
		}
	}
	var v View
	v.Look(nil, 0, time.Hour)
	if v.Corrupt() {
		t.Error("no bytes: got corrupt")
	}
}

// FuzzDecode proves that no bytes make Decode panic, and that what it accepts
// the arithmetic reads the same way.
func FuzzDecode(f *testing.F) {
	for _, n := range []int{1, 3, 13, 14, 40} {
		f.Add(sample(f, n, time.Hour))
		f.Add(sample(f, n, window.MaxWindow))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		c, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrNotLog) || err.Error() == ErrNotLog.Error() {
				t.Fatalf("got error %v", err)
			}
			return
		}
		if c.String() == "" || !bytes.Equal(before, b) {
			t.Fatal("no text, or the bytes were changed")
		}
		win := time.Hour
		if c.Unit == time.Millisecond {
			win = window.MaxWindow
		}
		var v View
		v.Look(b, 0, win)
		if v.Corrupt() {
			t.Fatalf("accepted by Decode, corrupt to Look: %+v", c)
		}
		if v.Used() > c.Used() {
			t.Fatalf("used %d, but the entries hold %d", v.Used(), c.Used())
		}
	})
}

// FuzzOperations runs checks on arbitrary bytes as if they were a log.
func FuzzOperations(f *testing.F) {
	for _, n := range []int{1, 3, 13, 14, 40} {
		f.Add(sample(f, n, time.Hour), []byte("0123456789abcdefghijklmnopqrstuvwxyz"))
		f.Add(sample(f, n, window.MaxWindow), []byte{255, 1, 2, 3, 0, 0, 0, 9, 4, 9, 9, 9})
	}
	f.Fuzz(func(t *testing.T, log, calls []byte) {
		// The header says how long the log should be: without help, few rings
		// would be as long as they say.
		if len(log) >= atRing && log[0]&kindRing != 0 {
			binary.BigEndian.PutUint32(log[atCap:], uint32((len(log)-atRing)/slotBytes))
		}
		now := int64(0)
		if len(log) > 9 {
			now = int64(binary.BigEndian.Uint64(log[1:]))
		}
		for ; len(calls) >= 4; calls = calls[4:] {
			win := []time.Duration{window.MinWindow, time.Hour, coarseAbove, window.MaxWindow}[calls[0]%4]
			c := &window.Check{
				Limit:     window.Limit{Hits: uint64(calls[1]) << (calls[0] >> 4), Window: win},
				Cost:      uint64(calls[2]) << (calls[0] >> 2 & 31),
				Mode:      window.Mode(calls[3] % 6),
				Precision: time.Duration(calls[3]>>4) * win / 8,
			}
			now += int64(int8(calls[3])) * win.Microseconds() / 64
			var d window.Decision
			log = take(log, now, c, &d)
			if d.Allowed && (d.Never || d.RetryAfter != 0) || d.Remaining > c.Limit.Hits {
				t.Fatalf("%+v: got %+v", c, d)
			}
		}
	})
}
