package probe

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Active has the probes that run. Nil never has one. It is safe for concurrent use.
type Active struct {
	set      atomic.Pointer[[]*Probe] // nil: none
	secrets  *tier.Secrets
	instance string
	now      func() time.Time
	seen     chan Seen
}

// Seen is a call that a probe has denied.
type Seen struct {
	ID   string // of the probe
	Call Call
}

// NewActive returns an Active without probes. instance names this process in calls.
func NewActive(secrets *tier.Secrets, instance string, now func() time.Time) *Active {
	return &Active{secrets: secrets, instance: instance, now: now, seen: make(chan Seen, MaxCalls)}
}

// Store makes the probes that have not ended those that deny.
func (a *Active) Store(all []*Probe) {
	var running []*Probe
	for _, p := range all {
		if a.now().Before(p.Until) {
			running = append(running, p)
		}
	}
	if running == nil {
		a.set.Store(nil)
		return
	}
	a.set.Store(&running)
}

// Seen returns the calls that probes have denied.
func (a *Active) Seen() <-chan Seen { return a.seen }

// On reports whether a probe may run.
func (a *Active) On() bool { return a != nil && a.set.Load() != nil }

// OfKey returns the probe of a key by its fingerprint, or nil.
func (a *Active) OfKey(fingerprint string) *Probe {
	return a.find(func(digest string) bool { return tier.FingerprintDigest(fingerprint) == digest })
}

// find returns the first probe whose digest fits. If all have ended, it removes them.
func (a *Active) find(fits func(digest string) bool) *Probe {
	set := a.set.Load()
	if set == nil {
		return nil
	}
	now, ended := a.now(), true
	for _, p := range *set {
		if !now.Before(p.Until) {
			continue
		}
		if ended = false; fits(p.Digest) {
			return p
		}
	}
	if ended {
		a.set.CompareAndSwap(set, nil)
	}
	return nil
}

// Find returns the probe whose key is the value of an entry, or nil. Values that are API keys are
// fingerprints.
func (a *Active) Find(all []decide.Descriptor) *Probe {
	left := maxEntries
	for _, d := range all {
		for _, e := range d.Entries[:min(left, len(d.Entries))] {
			left--
			digest := ""
			if p := a.find(func(of string) bool {
				if digest == "" {
					digest = a.digest(e)
				}
				return digest == of
			}); p != nil {
				return p
			}
		}
	}
	return nil
}

// digest returns the digest of the key in an entry.
func (a *Active) digest(e descriptors.Entry) string {
	if a.secrets.Is(e.Key) {
		return tier.FingerprintDigest(e.Value)
	}
	return a.secrets.Digest(e.Value)
}

// Note keeps what a call had that p denies. The context of a call has the deadline of its caller. If
// many wait to be written, Note drops the call.
func (a *Active) Note(ctx context.Context, p *Probe, rs *rules.Rules, all []decide.Descriptor, c Call) {
	c.At, c.Instance = a.now().UTC().Truncate(time.Millisecond), a.instance
	if deadline, ok := ctx.Deadline(); ok {
		c.Deadline = max(1, time.Until(deadline).Round(time.Millisecond).Milliseconds())
	}
	for _, d := range all[:min(len(all), maxTexts)] {
		parts := make([]string, min(len(d.Entries), maxTexts))
		for i := range parts {
			e := d.Entries[i]
			parts[i] = descriptors.Escape(e.Key) + "=" + descriptors.Escape(a.shown(p, rs, e))
		}
		c.Descriptors = append(c.Descriptors, strings.Join(parts, ","))
	}
	for name, value := range c.Context {
		if a.secrets.Hides(name) || a.secrets.Digest(value) == p.Digest {
			c.Context[name] = rules.HiddenValue
		}
	}
	select {
	case a.seen <- Seen{p.ID, c.bounded()}:
	default:
	}
}

// shown returns the value of an entry as it may be shown.
func (a *Active) shown(p *Probe, rs *rules.Rules, e descriptors.Entry) string {
	digest := a.digest(e)
	if digest == p.Digest || a.secrets.Is(e.Key) {
		return digest
	}
	if !rs.Shows(e.Key) {
		return rules.HiddenValue
	}
	path, _, _ := strings.Cut(e.Value, "?")
	return path[:min(len(path), maxText)]
}
