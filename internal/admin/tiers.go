package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/slidegate/slidegate/internal/tier"
)

// Tiers is what support asks about keys: a [tier.Cache], or what stands for one.
// Safe for concurrent use.
type Tiers interface {
	// Look says what is held of a key.
	Look(tier.Key) tier.Inspection
	// Lookup asks the source.
	Lookup(context.Context, tier.Key) (tier.Inspection, error)
	// Invalidate has what is held asked for anew.
	Invalidate(tier.Change)
}

// lookupTimeout bounds one question of support.
const lookupTimeout = 5 * time.Second

// maxChange is far above what names one key or subject.
const maxChange = 4 << 10

// A TierRecord is what is known of one key, as the admin port writes it.
type TierRecord struct {
	// Known: somebody has the key.
	Known     bool                    `json:"known"`
	Subject   string                  `json:"subject,omitempty"`
	Tier      string                  `json:"tier,omitempty"`
	Disabled  bool                    `json:"disabled,omitempty"`
	Overrides map[string]TierOverride `json:"overrides,omitempty"`
	Labels    map[string]string       `json:"labels,omitempty"`
	// AgeSeconds is how long ago the source said so.
	AgeSeconds float64 `json:"age_seconds"`
	// Fresh: the next request is answered by it without asking.
	Fresh bool `json:"fresh"`
}

// A TierOverride is a limit that a subject has of its own.
type TierOverride struct {
	Unlimited bool        `json:"unlimited,omitempty"`
	Limits    []TierLimit `json:"limits,omitempty"`
}

// A TierLimit is one limit of an override.
type TierLimit struct {
	Window   string `json:"window"`
	Requests uint64 `json:"requests"`
}

// A TierLookup answers a lookup.
type TierLookup struct {
	// Held is what this instance held before it asked. Null: nothing.
	Held *TierRecord `json:"held"`
	// Source is what the source says. Null: it could not.
	Source *TierRecord `json:"source"`
	// Error is why it could not.
	Error string `json:"error,omitempty"`
}

// tierPages adds the pages about tiers.
func tierPages(mux *http.ServeMux, tiers Tiers) {
	mux.HandleFunc("GET /v1/tiers/lookup", func(w http.ResponseWriter, r *http.Request) {
		k := tier.Key{Digest: r.URL.Query().Get("digest"), ID: r.URL.Query().Get("id")}
		if (k.Digest == "") == (k.ID == "") {
			http.Error(w, "name one of digest and id", http.StatusBadRequest)
			return
		}
		if k.Digest != "" {
			// In the one form that digests have.
			var err error
			if k.Digest, err = tier.ReadDigest(k.Digest); err != nil {
				http.Error(w, "digest: "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		answer := TierLookup{Held: record(tiers.Look(k))}
		ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
		defer cancel()
		now, err := tiers.Lookup(ctx, k)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Source = record(now)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
	})
	mux.HandleFunc("POST /v1/tiers/invalidate", func(w http.ResponseWriter, r *http.Request) {
		// What a page in somebody's browser can send without being asked has another
		// type.
		if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
			http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChange))
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		var c tier.Change
		if err == nil {
			c, err = tier.ReadChange(body)
		}
		if err != nil {
			http.Error(w, err.Error()+`; send {"digest": "..."}, {"subject": "..."} or {"all": true}`, http.StatusBadRequest)
			return
		}
		tiers.Invalidate(c)
		w.WriteHeader(http.StatusNoContent)
	})
}

func record(i tier.Inspection) *TierRecord {
	if !i.Held {
		return nil
	}
	r := &TierRecord{AgeSeconds: i.Age.Seconds(), Fresh: i.Fresh}
	s := i.Subject
	if s == nil {
		return r
	}
	r.Known, r.Subject, r.Tier, r.Disabled, r.Labels = true, s.ID, s.Tier, s.Disabled, s.Labels()
	if s.Extra == nil {
		return r
	}
	r.Overrides = make(map[string]TierOverride, len(s.Extra.Overrides))
	for rule, o := range s.Extra.Overrides {
		limits := make([]TierLimit, len(o.Limits))
		for i, l := range o.Limits {
			limits[i] = TierLimit{Window: l.Window.String(), Requests: l.Hits}
		}
		r.Overrides[rule] = TierOverride{Unlimited: o.Unlimited, Limits: limits}
	}
	return r
}
