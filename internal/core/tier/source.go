package tier

import (
	"context"
	"errors"
	"time"
)

// A Key identifies a subject: by the digest of an API key, or by its id.
type Key struct {
	// Digest is the digest of the API key, 64 hexadecimal digits in lower case. Empty:
	// ID counts.
	Digest string
	// ID is the subject's id. It counts if Digest is empty.
	ID string
	// Plain is the API key itself, for a source that needs it. It is empty for all
	// other sources. A source must not keep it after the question.
	Plain string
}

// An Answer is the result of [Resolver].Resolve.
type Answer struct {
	// Subject is nil if the key is unknown, or if Unavailable.
	Subject *Subject
	// Unavailable: the source does not answer, and there is no earlier answer.
	Unavailable bool
	// Stale: the source does not answer, and this is an earlier answer that has
	// expired.
	Stale bool
}

// NoWait is a wait with which a [Resolver] answers from memory or not at all.
const NoWait time.Duration = -1

// OnlyKnown is [NoWait] with which a [Resolver] also answers by an expired record of a known key. It
// never asks a source about an unknown key.
const OnlyKnown time.Duration = -2

// A Resolver finds the subject of a key: a [Directory], or a cache in front of a [Source]. It is safe for
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

// A Source has subjects outside of this process. It is safe for concurrent use. What it
// returns is immutable.
type Source interface {
	// Lookup asks for the record of one key. ctx bounds the question.
	// An error means that the source did not answer. If it wraps [ErrBadRecord], the
	// source answered with a malformed record.
	Lookup(ctx context.Context, k Key) (*Record, error)
	// Close frees what the source holds. Lookups that are under way fail.
	Close() error
}

// A Batcher is a [Source] that looks up many keys in one round trip.
type Batcher interface {
	Source
	// Batch returns the largest number of keys of one LookupAll. At 1 LookupAll is not
	// called.
	Batch() int
	// LookupAll is Lookup for several keys. It returns a result for each, in their order.
	LookupAll(ctx context.Context, keys []Key) []Result
}

// A Result is what [Source].Lookup returns for one key.
type Result struct {
	Record *Record
	Err    error
}

// A Record is the answer of a source for one key.
type Record struct {
	// Subject is nil if the key is unknown. Its tier may be empty or unknown to the
	// rules.
	Subject *Subject
	// MaxAge is how long the source allows to keep the record. Zero: the source sets no
	// bound. Negative: not at all.
	MaxAge time.Duration
}

// A Watcher is a [Source] that reports changes.
type Watcher interface {
	Source
	// Watch reports changes until ctx ends or it fails, and returns why. It calls ready
	// once, when no later change can be missed, and changed for each change. Neither
	// may block. The caller calls Watch again.
	Watch(ctx context.Context, ready func(), changed func(Change)) error
}

// A Change names the records that may have changed. The zero value names all records.
type Change struct {
	// Digest is the digest of one key. ID is a subject with all of its keys.
	Digest, ID string
}

// ErrBadRecord is wrapped by errors about a malformed record, rather than about the
// source. The text names the location and what is wrong there.
var ErrBadRecord = errors.New("bad record")

// An Inspection is what a cache holds for a key.
type Inspection struct {
	// Cached: there is a record that is an answer, at least while the source does not
	// answer. Otherwise all fields are zero.
	Cached bool
	// Subject is nil if the key is unknown.
	Subject *Subject
	// Age is the time since the question that returned the record.
	Age time.Duration
	// Fresh: the next request gets the record without a question.
	Fresh bool
}
