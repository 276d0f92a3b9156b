package inspect

import (
	"context"
	"errors"
	"strings"

	"github.com/slidegate/slidegate/pkg/window"
)

// A Inspector lets an operator see and remove logs. It charges nothing and decides nothing.
// Every store implements it. Implementations are safe for concurrent use.
type Inspector interface {
	// Read returns the logs with these ids, in their order. A log that is not there has no
	// entries. Read blocks no longer than ctx allows. If some logs cannot be read, Read
	// returns the others with an error.
	Read(ctx context.Context, ids []window.LogID) ([]Reading, error)
	// List returns ids of logs that match m. cursor is empty for the first call, and next
	// is the cursor of the following call; it is empty after the last one. One call does a
	// bounded amount of work, so it may return no ids although more follow. A log that
	// exists during all calls is listed at least once. A log in which nothing counts any
	// more may be listed too. If the store cannot continue from cursor, the error wraps
	// [ErrCursor].
	List(ctx context.Context, m Match, cursor string) (ids []window.LogID, next string, err error)
	// Remove removes logs and returns what was in them, in the order of ids. It removes
	// the logs with one hash tag at once, up to [window.MaxChecks] of them: no request is decided
	// between them. A log that is named twice is empty the second time. Other processes may deny
	// from memory for a second more. What streams hold in a removed log of [window.InFlight] does not count
	// any more, although they may go on: an end of theirs changes nothing there. What they have reserved of a removed log goes too. If some logs cannot be removed, Remove returns the removed
	// ones with an error. After an error, a log that was not returned may have been
	// removed too.
	Remove(ctx context.Context, ids []window.LogID) ([]Reading, error)
}

// ErrCursor is wrapped by the error of [Inspector.List] for a cursor that is not one of
// the store's, or that the store cannot continue from any more. Begin a new list.
var ErrCursor = errors.New("window: the list cannot continue from this cursor; begin a new list")

// A Match chooses logs by their keys. The zero value matches every log.
type Match struct {
	// Tag is the text between the braces at the beginning of a key, as
	// descriptors.AppendKey escapes it. Empty: any. With a tag, one server of a cluster is
	// asked.
	Tag string
	// Contains is a text that the key must contain, escaped. Empty: any.
	Contains string
}

// Matches reports whether m chooses a log by its key.
func (m Match) Matches(key string) bool {
	if m.Tag != "" {
		rest, ok := strings.CutPrefix(key, "{"+m.Tag)
		if !ok || !strings.HasPrefix(rest, "}") {
			return false
		}
	}
	return strings.Contains(key, m.Contains)
}
