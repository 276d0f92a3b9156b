package probelist

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/sharedlist"
)

const key = "a-key-of-a-probe-0123"

// TestStart: four probes run at a time, a further one replaces one that has ended, and no key is in the
// document or in an error.
func TestStart(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	document := new(sharedlist.Memory)
	l := New(Options{Document: document, Secrets: tier.NewSecrets(nil, nil), Instance: "here", Now: func() time.Time { return now }, Log: zap.NewNop(), Audit: zap.NewNop()})
	start := func(key string, seconds int) (string, error) {
		p, err := l.Start(t.Context(), Request{Key: key, Seconds: seconds})
		if err != nil {
			return "", err
		}
		return p.ID, nil
	}
	refused := func(what, text, key string, seconds int) {
		t.Helper()
		_, err := start(key, seconds)
		if invalid := new(insight.InvalidError); !errors.As(err, &invalid) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "0123") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a short key", "key:", "012345678901234", 10)
	refused("a long key", "key:", strings.Repeat("0123", 2000), 10)
	refused("a key with a space", "key:", "Bearer 0123456789abcdef", 10)
	refused("no seconds", "seconds:", key, 0)
	refused("61 seconds", "seconds:", key, 61)
	first, err := start(key, 10)
	if err != nil {
		t.Fatal(err)
	}
	refused("the same key", "runs already", key, 10)
	for i := range probe.MaxProbes - 1 {
		if _, err := start(fmt.Sprint(key, i), 60); err != nil {
			t.Fatal(err)
		}
	}
	refused("a fifth", "which is the most", key+"9", 10)
	if _, data, _ := document.Load(t.Context(), ""); strings.Contains(string(data), "0123") {
		t.Errorf("the document has a key: %s", data)
	}
	now = now.Add(10 * time.Second)
	if _, err := l.Get(first); err != nil {
		t.Error("a probe cannot be read after its end:", err)
	}
	if _, err := start(key+"9", 10); err != nil {
		t.Error("after the end of the first:", err)
	}
	if _, err := l.Get(first); !errors.Is(err, ErrNone) {
		t.Error("the first one was not replaced:", err)
	}
	now = now.Add(time.Minute + probe.Keep)
	if all := l.shared.All(); len(all) != 0 {
		t.Errorf("%d probes stay", len(all))
	}
}

// TestAdd: at most 32 calls are kept, and records that others read do not change.
func TestAdd(t *testing.T) {
	p := probe.New("", time.Time{})
	batch := []probe.Seen{{ID: "another"}}
	for range probe.MaxCalls + 5 {
		batch = append(batch, probe.Seen{ID: p.ID})
	}
	after := add([]*probe.Probe{p}, batch)
	if len(after[0].Calls) != probe.MaxCalls || len(p.Calls) != 0 {
		t.Errorf("%d calls, and %d in the record of before", len(after[0].Calls), len(p.Calls))
	}
}
