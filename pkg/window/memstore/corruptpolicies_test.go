package memstore

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// recordOf returns the record of a log of a policy, which was charged at second 60.
func recordOf(t testing.TB, p window.Policy, cost uint64) record {
	t.Helper()
	s, now := testStore(t)
	*now = time.Minute
	c := ofPolicy(p, cost)
	take(t, s, c)
	i, hash := s.shardOf(c.Log())
	l := s.shards[i].find(c.Log(), hash)
	return record{l.key, uint64(p)<<policyBits | uint64(time.Minute.Microseconds()), uint32(l.limit), l.packed}
}

// file returns a snapshot with one log, saved at second 60 of a clock that counts from 1970.
func (r record) file() []byte { return craft(snapshotVersion, 60e6, []record{r}, 1, 60e6) }

// use takes what Load accepts through what a store does with a log.
func use(t *testing.T, file []byte, p window.Policy) {
	t.Helper()
	s, source, _ := loadAt(t, file, 0, 0)
	for _, m := range []window.Mode{window.Enforce, window.Always, window.Refund, window.Observe} {
		c := ofPolicy(p, 3)
		c.Mode = m
		d := take(t, s, c)[0]
		if d.Remaining > 5 || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Allowed && d.RetryAfter > 0 {
			t.Errorf("%v, %v: got %+v", p, m, d)
		}
	}
	s.Sweep()
	verify(t, s)
	if err := loads(t, saved(t, s)); err != nil {
		t.Errorf("%v: saved again: %v", p, err)
	}
	*source += 2 * window.MaxWindow
	if s.Sweep(); s.Len() != 0 {
		t.Errorf("%v: %d logs outlive every window", p, s.Len())
	}
}

// TestCorruptPolicies loads files with right checksums and wrong logs of the policies: cut off,
// too long, of another policy, of another window, with numbers that cannot be.
func TestCorruptPolicies(t *testing.T) {
	for _, p := range counters {
		good := recordOf(t, p, 5)
		refuses := func(what, want string, change func(*record)) {
			t.Helper()
			r := good
			r.packed = bytes.Clone(good.packed)
			change(&r)
			if err := loads(t, r.file()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %s: got error %v, want %q", p, what, err, want)
			}
		}
		if err := loads(t, good.file()); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		use(t, good.file(), p)
		for n := range good.packed {
			refuses("cut off", "not a log", func(r *record) { r.packed = r.packed[:n] })
		}
		refuses("too long", "not a log", func(r *record) { r.packed = append(r.packed, 0) })
		refuses("of an unknown kind", "not a log", func(r *record) { r.packed[0] = 0xaf })
		refuses("of the year 2255", "not a log", func(r *record) { r.packed[1] = 0x20 })
		for _, q := range slices.Concat(counters, []window.Policy{window.Sliding, window.InFlight}) {
			if q != p {
				refuses("with the bytes of "+q.String(), "a log of "+q.String()+" cannot be one of "+p.String(), func(r *record) { r.packed = recordOf(t, q, 5).packed })
			}
		}
	}
	for _, tt := range []struct {
		policy window.Policy
		what   string
		change func(*record)
	}{
		{window.Fixed, "ends a microsecond after its window", func(r *record) { r.packed[19]++ }},
		{window.Fixed, "ends before its clock", func(r *record) { clear(r.packed[13:]) }},
		{window.Fixed, "of a shorter window", func(r *record) { r.micros -= 1 }},
		{window.Calendar, "ends after the longest period", func(r *record) { r.packed[13] = 0x10 }},
		{window.Calendar, "ends before its clock", func(r *record) { clear(r.packed[13:]) }},
		{window.TokenBucket, "with a whole token as a fraction", func(r *record) { copy(r.packed[14:20], []byte{0, 0, 3, 0x93, 0x87, 0}) }},
		{window.TokenBucket, "with the greatest debt and one more", func(r *record) { clear(r.packed[9:14]) }},
		{window.TokenBucket, "with more tokens than a limit has", func(r *record) { r.packed[9] = 2 }},
	} {
		r := recordOf(t, tt.policy, 5)
		tt.change(&r)
		if err := loads(t, r.file()); err == nil {
			t.Errorf("%v %s: loaded", tt.policy, tt.what)
		}
	}
}

// TestFlippedPolicies flips every bit of the logs of the policies and of what a snapshot says of
// them. A file whose checksum is right is refused, or its logs can be used.
func TestFlippedPolicies(t *testing.T) {
	for _, p := range counters {
		good := recordOf(t, p, 2)
		file := good.file()
		for bit := range 8 * len(file) {
			flipped := bytes.Clone(file)
			flipped[bit/8] ^= 1 << (bit % 8)
			if loads(t, flipped) == nil {
				t.Errorf("%v: loaded with bit %d wrong", p, bit)
			}
		}
		for bit := range 8 * len(good.packed) {
			r := good
			r.packed = bytes.Clone(good.packed)
			r.packed[bit/8] ^= 1 << (bit % 8)
			if loads(t, r.file()) == nil {
				use(t, r.file(), p)
			}
		}
		for bit := range 64 {
			r := good
			r.micros ^= 1 << bit
			if loads(t, r.file()) == nil {
				use(t, r.file(), p)
			}
		}
	}
}
