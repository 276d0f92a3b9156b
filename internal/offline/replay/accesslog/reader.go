package accesslog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
)

// DefaultReorder is the default of Options.Reorder.
const DefaultReorder = time.Minute

// defaultMaxWaiting is the default of Options.MaxWaiting.
const defaultMaxWaiting = 256 << 20

// maxLine is the longest line that is read, in bytes. A longer one is broken.
const maxLine = 1 << 20

// maxFaults is how many broken lines are kept.
const maxFaults = 10

// Options of a [Reader].
type Options struct {
	// Paths are files; - is the standard input. Files may be packed by gzip or zstd, whatever their
	// names say.
	Paths []string
	// Format of all files: json, envoy (the default text format of Envoy), nginx (combined or common),
	// caddy, or the text of a log format: of Envoy with %OPERATORS%, or of nginx with $variables.
	// Empty: each file's own.
	Format string
	// Fields says what the fields of JSON are, by name. Points in a name lead into objects: a.b is b
	// of a. Nil: the names in the Envoy files of Slidegate, or in the default logs of Envoy Gateway
	// and Istio.
	Fields map[string]Attribute
	// Written are more formats that files may have if neither Format nor Fields says theirs. The
	// reader tries them before the formats that it knows. Those that cannot be read are left out.
	Written []Written
	// Want are the attributes that the records have.
	Want []Attribute
	// Reorder is how much later than a request that started after it a line may come, by the times in
	// the log. Zero: one minute. Negative: not at all.
	Reorder time.Duration
	// MaxWaiting bounds the bytes of records that wait for earlier ones. If they are more, the earliest
	// are given early. Zero: 256 MiB.
	MaxWaiting int64
	// Stdin is read for the path -. Nil: os.Stdin.
	Stdin io.Reader
	// Done ends reads of the standard input and of pipes when it is closed, although they wait.
	// Nil: nothing does.
	Done <-chan struct{}
}

// Stats says what a [Reader] has read so far. It is a part of the report of a replay.
type Stats struct {
	Lines  uint64 `json:"lines"`      // all, without empty ones
	Broken uint64 `json:"unreadable"` // lines that are no record
	// Late counts records that came after a later one had been given.
	Late uint64 `json:"late"`
	// NoRequest counts lines of connections on which no request came: their method and path are
	// absent. Envoy asks nothing about them.
	NoRequest uint64 `json:"no_request,omitempty"`
	// AtEnd counts records whose line says only when the request ended, and not how long it lasted.
	// Their time is the end.
	AtEnd uint64 `json:"at_end,omitempty"`
	// NoAddress counts records whose client or peer is wanted and is no IP address.
	NoAddress uint64 `json:"no_address,omitempty"`
	// TooEarly counts records whose duration says that they started further before the first line of
	// their file than their own line is behind it.
	TooEarly uint64  `json:"span,omitempty"`
	Faults   []Fault `json:"errors,omitempty"` // the first broken lines, at most ten
	// WholeSeconds is true if a file with several records has times in whole seconds.
	WholeSeconds bool `json:"whole_seconds,omitempty"`
}

// A Fault is a broken line.
type Fault struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`   // from 1
	Reason string `json:"reason"` // without any part of the line
}

// A Reader reads the records of access logs by the time of their start. It is not safe for concurrent
// use.
type Reader struct {
	files      []*file
	order      order
	reorder    int64
	maxWaiting int64

	given  int64 // the time of the last record
	record Record
	stats  Stats
	errs   []error
	closed bool
}

// Open opens logs and finds out their formats. It reports everything that is wrong with them at
// once. Close the reader after use.
func Open(o Options) (*Reader, error) {
	formats, err := candidates(&o)
	if err != nil {
		return nil, err
	}
	if len(o.Paths) == 0 {
		return nil, errors.New("no log is named; name files, or - for the standard input")
	}
	r := &Reader{reorder: int64(o.Reorder), maxWaiting: o.MaxWaiting, given: math.MinInt64}
	switch {
	case o.Reorder == 0:
		r.reorder = int64(DefaultReorder)
	case o.Reorder < 0:
		r.reorder = 0
	}
	if r.maxWaiting <= 0 {
		r.maxWaiting = defaultMaxWaiting
	}
	r.record.Values = make([]Value, len(o.Want))
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	var errs []error
	for i, path := range o.Paths {
		f, err := openFile(path, i, &o, formats)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.files = append(r.files, f)
	}
	if len(errs) > 0 {
		_ = r.Close()
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// Next returns the next record, io.EOF after the last one. If files could not be read to their
// ends, the error after the last record says so instead. The record is valid until the next call.
func (r *Reader) Next() (*Record, error) {
	for {
		f := r.earliest()
		until := int64(math.MaxInt64)
		if f != nil {
			until = f.seen.mark - r.reorder
		}
		if next, ok := r.order.take(until, r.maxWaiting); ok {
			readRecord(&r.record, next.at, next.record)
			if next.at < r.given {
				r.stats.Late++
			} else {
				r.given = next.at
			}
			return &r.record, nil
		}
		switch {
		case f != nil:
			r.fill(f)
		case len(r.errs) > 0:
			return nil, errors.Join(r.errs...)
		default:
			return nil, io.EOF
		}
	}
}

// A progress is how far a file has been read, by the times in it.
type progress struct {
	mark    int64 // the time up to which it has been read
	ahead   int64 // the time of a line that jumped
	records int
	fine    bool // a record has parts of a second
	ended   bool
}

// maxJump is how far a line may be ahead of the last ones before a second line must confirm it:
// one line with a wrong time must not make all others late.
const maxJump = int64(time.Hour)

// see moves the mark on.
func (p *progress) see(at int64) {
	switch {
	case at <= p.mark:
	case at-p.mark <= maxJump:
		p.mark = at
	case p.ahead > 0 && at-p.ahead <= maxJump && p.ahead-at <= maxJump:
		p.mark, p.ahead = at, 0
	default:
		p.ahead = at
	}
}

// earliest returns the file that has been read least far, by the times in it; nil if all have ended.
func (r *Reader) earliest() *file {
	var first *file
	for _, f := range r.files {
		if !f.seen.ended && (first == nil || f.seen.mark < first.seen.mark) {
			first = f
		}
	}
	return first
}

// fill reads more of a file.
func (r *Reader) fill(f *file) {
	b := f.next()
	if b == nil {
		f.seen.ended = true
		if f.err != nil {
			r.errs = append(r.errs, f.err)
		}
		return
	}
	for _, record := range b.records {
		r.order.add(record)
		f.seen.see(record.at)
	}
	f.seen.records, f.seen.fine = f.seen.records+len(b.records), f.seen.fine || b.fine
	r.stats.Lines += b.Lines
	r.stats.Broken += b.Broken
	r.stats.NoRequest += b.NoRequest
	r.stats.AtEnd += b.AtEnd
	r.stats.NoAddress += b.NoAddress
	r.stats.TooEarly += b.TooEarly
	r.stats.Faults = append(r.stats.Faults, b.Faults[:min(len(b.Faults), maxFaults-len(r.stats.Faults))]...)
}

// Stats returns what was read until the last record.
func (r *Reader) Stats() Stats {
	s := r.stats
	s.WholeSeconds = slices.ContainsFunc(r.files, func(f *file) bool { return f.seen.records > 1 && !f.seen.fine })
	return s
}

// Close ends reading. If the standard input is read, a read of it may go on until it returns.
func (r *Reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	for _, f := range r.files {
		f.close()
	}
	return nil
}

// pathError returns an error about a file.
func pathError(path string, format string, args ...any) error {
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}
