package tier

import (
	"context"
	"errors"
	"time"
)

// A Key is what a subject is looked up by: the digest of an API key, or an id.
type Key struct {
	// Digest is that of the API key, 64 lower-case hex digits. Empty: by ID.
	Digest string
	// ID is the subject's id, where there is no digest.
	ID string
	// Plain is the API key itself, for a source that has to be asked by it. Empty
	// for all others. It must not outlive the question.
	Plain string
}

// An Answer says who a key belongs to.
type Answer struct {
	// Subject is nil if nobody has the key, or if nobody could say.
	Subject *Subject
	// Unavailable: the source could not say, and nothing that it said before is
	// known.
	Unavailable bool
	// Stale: the source said so before, and cannot say whether it is still true.
	Stale bool
}

// NoWait is a wait with which a [Resolver] answers from memory or not at all.
const NoWait time.Duration = -1

// A Resolver finds the subject of a key: a [Directory] or a [Cache]. It is safe for
// concurrent use.
type Resolver interface {
	// Resolve returns the subject of a key. It may ask a source and wait for the
	// answer, until wait has passed or ctx ends. Then it answers by what it knows, and
	// ok is true.
	//
	// If wait is negative ([NoWait]), Resolve never waits, and does not use ctx. If it
	// would have to ask a source first, ok is false and Resolve has counted nothing.
	// The caller then calls it again with a wait.
	Resolve(ctx context.Context, k Key, wait time.Duration) (a Answer, ok bool)
}

// A Source is where subjects live, outside of this process. It is safe for
// concurrent use. What it returns is not written to again by anybody.
type Source interface {
	// Lookup asks for one key. last is what Lookup returned for this key before, or
	// nil: a source that can ask whether it still holds does, and returns last
	// itself if it does. An error means that the source could not say; one that
	// wraps [ErrBadRecord] means that it said something which is no record. ctx
	// bounds the question.
	Lookup(ctx context.Context, k Key, last *Record) (*Record, error)
	// Close gives back what the source holds. Lookups that are under way fail.
	Close() error
}

// A Record is what a source says of one key.
type Record struct {
	// Subject is nil if nobody has the key. Its tier may be empty, or be one that
	// the rules do not know.
	Subject *Subject
	// MaxAge is how long the source allows to believe it. Zero: it does not say.
	// Negative: not at all.
	MaxAge time.Duration
	// Tag is the source's own name for this version of the record. Empty: none.
	Tag string
}

// A Watcher is a [Source] that tells of changes.
type Watcher interface {
	Source
	// Watch listens until ctx ends or it cannot any longer, and says why. ready is
	// called once everything that changes from now on will be told, changed for
	// each change; neither may be kept waiting. The caller begins anew.
	Watch(ctx context.Context, ready func(), changed func(Change)) error
}

// A Change says whose record may have changed. The zero value: everybody's.
type Change struct {
	// Digest is that of a key; ID is a subject with all of its keys.
	Digest, ID string
}

// ErrBadRecord is wrapped by errors about what a source holds, rather than about
// the source: the text names the place and what is wrong there.
var ErrBadRecord = errors.New("bad record")
