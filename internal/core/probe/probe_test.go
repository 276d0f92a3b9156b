package probe

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

const key = "a-key-of-a-probe-0123"

// request has the entries of one descriptor, as pairs.
func request(pairs ...string) []decide.Descriptor {
	var d decide.Descriptor
	for pair := range slices.Chunk(pairs, 2) {
		d.Entries = append(d.Entries, descriptors.Entry{Key: pair[0], Value: pair[1]})
	}
	return []decide.Descriptor{d}
}

// TestActive: a probe finds its key in any entry until its end, and then nothing is left of it.
func TestActive(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	secrets := tier.NewSecrets([]string{"api_key"}, []byte("a secret"))
	a := NewActive(secrets, "here", func() time.Time { return now })
	if a.On() || (*Active)(nil).On() {
		t.Fatal("it is on without a probe")
	}
	p := New(secrets.Digest(key), now.Add(10*time.Second))
	a.Store([]*Probe{New(secrets.Digest("ended"), now), p})
	for name, tt := range map[string]struct {
		entries []string
		found   bool
	}{
		"a fingerprint":          {[]string{"route", "search", "api_key", secrets.Fingerprint(key)}, true},
		"a plain value":          {[]string{"x-client", key}, true},
		"a bearer":               {[]string{"authorization", "Bearer " + key}, true},
		"another key":            {[]string{"api_key", secrets.Fingerprint(key + "4")}, false},
		"the key of an old one":  {[]string{"x-client", "ended"}, false},
		"no entries":             {nil, false},
		"behind too many values": {append(slices.Repeat([]string{"a", "b"}, maxEntries), "x-client", key), false},
	} {
		if got := a.Find(request(tt.entries...)); (got == p) != tt.found {
			t.Errorf("%s: %v", name, got)
		}
	}
	if a.OfKey(secrets.Fingerprint(key)) != p || a.OfKey(secrets.Fingerprint("other")) != nil {
		t.Error("a credential is not compared")
	}
	now = now.Add(10 * time.Second)
	if a.Find(request("x-client", key)) != nil || a.On() {
		t.Error("the probe has not ended")
	}
}

// TestNote: a call is kept without keys and without what no rule names, and many calls do not wait.
func TestNote(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	secrets := tier.NewSecrets([]string{"api_key"}, nil)
	rs := rules.NewRules(rules.Identity{Secrets: secrets})
	rule := rules.Rule{Domain: "edge", Name: "r", Path: []descriptors.Node{{Key: "path", AnyValue: true}}, Terms: rules.Terms{Limits: []rules.Limit{{Limit: window.Limit{Hits: 3, Window: time.Minute}}}}}
	if err := rs.Add(rule); err != nil {
		t.Fatal(err)
	}
	a := NewActive(secrets, "here", func() time.Time { return now })
	p := New(secrets.Digest(key), now.Add(10*time.Second))
	other := secrets.Fingerprint("a-customers-key-5678")
	all := request("path", "/a,b?key=planted", "api_key", secrets.Fingerprint(key), "x", key, "api_key", other, "cookie", "planted")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for range 2 * MaxCalls {
		a.Note(ctx, p, rs, all, Call{Service: "ext_authz", Context: map[string]string{"route": "search", "token": "planted", "x": key}})
	}
	if len(a.Seen()) != MaxCalls {
		t.Fatalf("%d calls wait, want %d", len(a.Seen()), MaxCalls)
	}
	seen := <-a.Seen()
	got := seen.Call
	want := []string{"path=/a\\,b,api_key=" + p.Digest + ",x=" + p.Digest + ",api_key=" + other + ",cookie=***"}
	if !slices.Equal(got.Descriptors, want) || seen.ID != p.ID || got.Instance != "here" || !got.At.Equal(now) || got.Deadline < 3.5e6 || got.Deadline > 3.6e6 {
		t.Errorf("%+v, want descriptors %q", got, want)
	}
	if got.Context["route"] != "search" || got.Context["token"] != "***" || got.Context["x"] != "***" || got.Cut {
		t.Errorf("%+v", got)
	}
	a.Note(t.Context(), p, rs, request("path", strings.Repeat("ä", maxText)), Call{})
	for len(a.Seen()) > 1 {
		<-a.Seen()
	}
	if last := (<-a.Seen()).Call; !last.Cut || len(last.Descriptors) != 1 || len(last.Descriptors[0]) > maxText || last.Deadline != 0 {
		t.Errorf("a long value: %+v", last)
	}
}

// TestParse: instances believe nothing of what is in Redis.
func TestParse(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	write := func(change func(*Probe)) []byte {
		p := New(tier.NewSecrets(nil, nil).Digest(key), now.Add(MaxTime))
		change(p)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	long := Call{Domain: "edge\x1b[2J", Descriptors: slices.Repeat([]string{strings.Repeat("ä", 300)}, 1000), Context: map[string]string{"a": "b"}}
	p, err := Parse(write(func(p *Probe) { p.Calls = []Call{long} }), now)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Calls[0]; !c.Cut || len(strings.Join(c.Descriptors, "")) > maxText || strings.Contains(c.Domain, "\x1b") {
		t.Errorf("a long call: %+v", c)
	}
	if data, _ := json.Marshal(p.Calls[0]); len(data) > 8*maxText {
		t.Errorf("a call has %d bytes", len(data))
	}
	for name, data := range map[string][]byte{
		"no JSON": []byte("nonsense"), "null": []byte("null"), "a list": []byte("[]"),
		"an id with a path": write(func(p *Probe) { p.ID = "../../../../" }),
		"a key":             write(func(p *Probe) { p.Digest = key }),
		"a long time":       write(func(p *Probe) { p.Until = now.Add(3 * MaxTime) }),
		"many calls":        write(func(p *Probe) { p.Calls = make([]Call, MaxCalls+1) }),
	} {
		if p, err := Parse(data, now); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
