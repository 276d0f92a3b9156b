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

// A Resolver answers at the speed of memory: a [Directory] or a [Cache]. It is
// safe for concurrent use.
type Resolver interface {
	// Resolve says who a key belongs to. It waits at most that long, less if ctx
	// ends, and then answers by what it knows.
	Resolve(ctx context.Context, k Key, wait time.Duration) Answer
	// Try is Resolve where that needs nobody to be asked, and reports whether it is.
	// Where it is not, nothing was counted and Resolve is to be called.
	Try(k Key) (a Answer, ok bool)
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
