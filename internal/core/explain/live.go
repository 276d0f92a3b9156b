package explain

import (
	"context"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A Live store decides with a copy of the logs that a request needs, so it charges nothing. It is
// for one Explain.
type Live struct {
	// Inspector reads the logs.
	Inspector inspect.Inspector
	// Err says why the logs could not be read. The store has then decided with empty logs. Nil: no
	// error.
	Err error
}

// Take implements [window.Store].
func (l *Live) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	ids := make([]window.LogID, len(checks))
	for i := range checks {
		ids[i] = checks[i].Log()
	}
	readings, err := l.Inspector.Read(ctx, ids)
	if err != nil {
		l.Err, readings = err, nil
	}
	store := memstore.Copy(readings)
	defer func() { _ = store.Close() }() // nothing is kept
	return store.Take(ctx, wait, checks, decisions)
}

// Close implements [window.Store].
func (*Live) Close() error { return nil }
