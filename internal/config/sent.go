package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
)

// Sent is all rules that an xDS server sent. It is immutable.
type Sent struct {
	// Version is what the server calls it. It means nothing here.
	Version string
	// Domains are in the order of their names, because a server may send them in any order.
	Domains []rules.Domain
}

// LoadSent makes a generation of what an xDS server sent. If sent is nil, it has sent
// nothing yet, and the rules are [rules.Rules.Missing].
//
// LoadSent takes the tiers of before, which LoadSent or [Load] returned for the same settings.
// If before is nil, LoadSent reads the tiers that the settings name. The error is as of Load.
func LoadSent(s settings.Settings, sent *Sent, before *Generation) (*Generation, error) {
	return load(loader{settings: s, served: true, sent: sent, before: before})
}

// digest returns the digest of a generation with tiers of the given digest. s may be nil.
func (s *Sent) digest(tiers []byte) string {
	h := sha256.New()
	h.Write(tiers)
	if s != nil {
		for i := range s.Domains {
			// A Domain has only what JSON has, and writing to h does not fail.
			_ = json.NewEncoder(h).Encode(&s.Domains[i])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:digestLen])
}
