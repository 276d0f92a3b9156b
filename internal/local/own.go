package local

import (
	"context"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// ownLogs are the logs of what this process admits, of all scopes. They tell the scopes apart by
// their keys.
type ownLogs struct{ *memstore.Store }

// scopeMark is in the key of a log of another scope than [window.Region], before the number of its
// scope. No key of a rule has it.
const scopeMark = "\x00"

// own returns the key of a log.
func own(key string, scope window.Scope) string {
	if scope == window.Region {
		return key
	}
	return key + scopeMark + string(rune('0'+scope))
}

// Take implements [window.Store]. It changes the checks.
func (o ownLogs) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	for i := range checks {
		if c := &checks[i]; c.Scope != window.Region {
			c.Key, c.Scope = own(c.Key, c.Scope), window.Region
		}
	}
	return o.Store.Take(ctx, wait, checks, decisions)
}

// ids returns the ids of the logs.
func (o ownLogs) ids(ids []window.LogID) []window.LogID {
	ids = slices.Clone(ids)
	for i, id := range ids {
		ids[i].Key, ids[i].Scope = own(id.Key, id.Scope), window.Region
	}
	return ids
}

// Read implements [window.Keeper].
func (o ownLogs) Read(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	readings, err := o.Store.Read(ctx, o.ids(ids))
	return named(readings), err
}

// Remove implements [window.Keeper].
func (o ownLogs) Remove(ctx context.Context, ids []window.LogID) ([]window.Reading, error) {
	readings, err := o.Store.Remove(ctx, o.ids(ids))
	return named(readings), err
}

// List implements [window.Keeper].
func (o ownLogs) List(ctx context.Context, m window.Match, cursor string) (ids []window.LogID, next string, err error) {
	ids, next, err = o.Store.List(ctx, m, cursor)
	for i := range ids {
		name(&ids[i])
	}
	return ids, next, err
}

// named gives readings the ids that their logs have outside.
func named(readings []window.Reading) []window.Reading {
	for i := range readings {
		name(&readings[i].ID)
	}
	return readings
}

// name is the reverse of own.
func name(id *window.LogID) {
	if key, scope, ok := strings.Cut(id.Key, scopeMark); ok && scope != "" {
		id.Key, id.Scope = key, window.Scope(scope[0]-'0')
	}
}
