package simulate

import (
	"github.com/slidegate/slidegate/internal/core/lease"
)

// mutants break the protocol in ways that the promises must show. The zero value breaks nothing.
type mutants struct {
	// before changes a call of a script, or answers it instead.
	before func(text string, keys, argv []string) (newKeys, newArgv []string, answer any)
	// record gets all calls of scripts, by their servers.
	record *[][]scriptCall
	// wrap replaces what leases call.
	wrap func(lease.Reserver) lease.Reserver
}

func (m *mutants) reserver(r lease.Reserver) lease.Reserver {
	if m.wrap == nil {
		return r
	}
	return m.wrap(r)
}
