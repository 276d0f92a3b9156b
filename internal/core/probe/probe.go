// Package probe denies the calls with one API key for some seconds, and notes what they had: a [Probe].
// So an operator sees with one request to Envoy that its calls reach this service, and with which
// descriptors. [Active] has the probes of now, and costs a call nothing while there is none.
//
// [Parse] reads what instances share, and believes nothing of it.
package probe

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// Bounds of probes.
const (
	// MaxTime is the longest time of a probe.
	MaxTime = time.Minute
	// Keep is how long a probe can be read after its end.
	Keep = 5 * time.Minute
	// MaxProbes is the largest number of probes that run, or that can be read.
	MaxProbes = 4
	// MaxCalls is how many calls of a probe are kept.
	MaxCalls = 32
	// MinKey is the length of the shortest key, in bytes.
	MinKey = 16
	// maxText bounds the texts of a call together, in bytes, and maxTexts their number.
	maxText, maxTexts = 1 << 10, 64
	// maxEntries is how many entries of a call are compared with the key.
	maxEntries = 256
	// idLen is the length of an id.
	idLen = 12
)

// A Probe denies each call with a key until a time. It is immutable.
type Probe struct {
	ID     string    `json:"id"`
	Digest string    `json:"digest" doc:"of the key"`
	Until  time.Time `json:"until" doc:"it can be read for 5 more minutes"`
	Calls  []Call    `json:"calls" doc:"those that were denied, at most 32"`
}

// A Call is what one call with the key had.
type Call struct {
	At       time.Time `json:"at"`
	Instance string    `json:"instance" doc:"the instance that denied it"`
	Service  string    `json:"service" doc:"ratelimit or ext_authz"`
	Domain   string    `json:"domain,omitempty"`
	// Descriptors have digests in place of API keys, and *** for values that no rule names.
	Descriptors []string `json:"descriptors" doc:"digests replace API keys, *** replaces a value whose key no rule names, and a value ends at its query"`
	// Context is that of the route.
	Context map[string]string `json:"context,omitempty" doc:"context_extensions of the route"`
	// Deadline is the time that the caller waits, in milliseconds. Zero: it sent none.
	Deadline int64 `json:"deadline_ms,omitempty" doc:"how long the caller still waited"`
	// Problem is why the context of the route makes no descriptors.
	Problem string `json:"problem,omitempty" doc:"why the context makes no descriptors"`
	// Cut: texts are missing, or not whole.
	Cut bool `json:"cut,omitempty" doc:"texts of more than 1 KiB together are missing"`
}

// New returns a probe of the key with a digest.
func New(digest string, until time.Time) *Probe {
	var id [idLen / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Probe{ID: hex.EncodeToString(id[:]), Digest: digest, Until: until.UTC(), Calls: []Call{}}
}

// Parse reads a probe. Its error repeats nothing of it.
func Parse(data []byte, now time.Time) (*Probe, error) {
	p := new(Probe)
	if json.Unmarshal(data, p) != nil || !hexed(p.ID, idLen) || !hexed(p.Digest, tier.DigestLen) || len(p.Calls) > MaxCalls {
		return nil, errors.New("it is no probe")
	}
	if p.Until.Sub(now) > 2*MaxTime {
		return nil, errors.New("it ends too late")
	}
	for i := range p.Calls {
		p.Calls[i] = p.Calls[i].bounded()
	}
	if p.Calls == nil {
		p.Calls = []Call{}
	}
	return p, nil
}

func hexed(text string, n int) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == n
}

// bounded returns the call with texts that are safe to show and at most maxText bytes together.
func (c Call) bounded() Call {
	bytes, texts := maxText, maxTexts
	take := func(text string) string {
		if texts--; texts < 0 {
			c.Cut = true
			return ""
		}
		short, cut := safetext.Bytes(text, bytes)
		bytes, c.Cut = bytes-len(short), c.Cut || cut
		return short
	}
	c.Instance, c.Service, c.Domain, c.Problem = take(c.Instance), take(c.Service), take(c.Domain), take(c.Problem)
	all := make([]string, 0, min(len(c.Descriptors), maxTexts))
	for _, d := range c.Descriptors {
		if d = take(d); d == "" {
			break
		}
		all = append(all, d)
	}
	c.Descriptors = all
	given := c.Context
	c.Context = nil
	for name, value := range given {
		if name = take(name); name == "" {
			break
		}
		if c.Context == nil {
			c.Context = make(map[string]string)
		}
		c.Context[name] = take(value)
	}
	return c
}
