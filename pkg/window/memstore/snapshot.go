package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore/internal/streamrecord"
	"github.com/slidegate/slidegate/pkg/window/packed"
)

// # The snapshot
//
// Numbers are big-endian.
//
//	magic     19  "slidegate-memstore\n"
//	version    1  7
//	clock      8  the store's clock when Save began, microseconds since 1970
//	logs          each:
//	  key      4  its length, at least 1
//	  packed   4  its length
//	  policy   1  and the scope above it, four bits each
//	  window   7  microseconds; of an idempotency record: the rest of its name
//	  limit    4  of the last check that could deny, as packed.Level
//	  key
//	  packed      package packed's bytes
//	end        4  0, where a key's length would be
//	count      8  of logs
//	clock      8  the store's clock when Save ended
//	checksum   4  CRC-32C of everything before
const (
	snapshotMagic   = "slidegate-memstore\n"
	snapshotVersion = 7

	logHeaderBytes = 4 + 4 + 8 + 4
	trailerBytes   = 8 + 8 + 4

	// maxSnapshotClock is the largest valid clock, and the largest time of day, in
	// microseconds: the year 2112. A log's clock cannot go beyond it.
	maxSnapshotClock = 1 << 52
)

// ErrBadSnapshot is wrapped by the errors of [Load] about the bytes. They are not a
// snapshot, are cut off, or have another version.
var ErrBadSnapshot = errors.New("memstore: not a good snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes all logs in which a hit still counts, for [Load], and returns their number.
// It may run while the store is in use, and after Close. It holds the lock of one shard at
// a time, while it copies that shard's logs. A group that is charged meanwhile may be saved
// in part. To avoid that, call Save while no Take runs.
func (s *Store) Save(w io.Writer) (logs int, err error) {
	sum := crc32.New(castagnoli)
	out := io.MultiWriter(w, sum)

	b := append([]byte(snapshotMagic), snapshotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(s.clockMicros()))
	for i := range s.shards {
		var n int
		b, n = s.shards[i].appendTo(b, s.clock().Microseconds())
		logs += n
		if _, err := out.Write(b); err != nil {
			return 0, fmt.Errorf("memstore: saving: %w", err)
		}
		b = b[:0]
	}
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(logs))
	b = binary.BigEndian.AppendUint64(b, uint64(s.clockMicros()))
	if _, err := out.Write(b); err != nil {
		return 0, fmt.Errorf("memstore: saving: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return 0, fmt.Errorf("memstore: saving: %w", err)
	}
	return logs, nil
}

// clockMicros returns the store's clock in microseconds, as logs have it.
func (s *Store) clockMicros() int64 { return max(s.clock().Microseconds(), 0) }

// appendTo appends the logs of a shard in which a hit counts, and returns their number.
func (sh *shard) appendTo(b []byte, now int64) ([]byte, int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var (
		c     candidate
		count int
	)
	for i := range sh.buckets {
		for l := *sh.bucket(i); l != nil; l = l.next {
			if c.judge(l, now) == expired {
				continue
			}
			id := l.id()
			b = binary.BigEndian.AppendUint32(b, uint32(len(id.Key)))
			b = binary.BigEndian.AppendUint32(b, uint32(len(l.packed)))
			word := uint64(kind(id.Scope, id.Policy)) | uint64(id.Window.Microseconds())
			if l.ofOnceRecord() {
				word = uint64(l.name)
			}
			b = binary.BigEndian.AppendUint64(b, word)
			b = binary.BigEndian.AppendUint32(b, uint32(l.limit))
			b = append(b, id.Key...)
			b = append(b, l.packed...)
			count++
		}
	}
	return b, count
}

// Loaded counts the logs of a snapshot by what Load did with them.
type Loaded struct {
	// Logs is the number of logs that were loaded.
	Logs int
	// Expired is the number of those in which nothing counts any more.
	Expired int
	// Dropped is the number of logs that had no room, because the bound is smaller than
	// that of the saved store. Load takes logs in the order of the snapshot.
	Dropped int
}

// Load returns a store that continues from a snapshot, and starts its sweeper. On an error
// the store is nil. Load does not panic, whatever the bytes are, and takes about as much
// memory as it reads.
//
// The store's clock is the time of day. What was saved is as old as the time of day says. If
// the time of day is before the clock of the saved store, the clock goes on from there. So
// setting the time of day back makes limits hold longer, by as much. Setting it forward, also
// while the saved store ran, lets logs expire early. Later changes of the time of day have no
// effect. If [Options.Clock] is set, it measures the time after the
// call. Where it starts does not matter.
func Load(r io.Reader, o Options) (*Store, Loaded, error) { return load(r, o, time.Now()) }

func load(r io.Reader, o Options, wall time.Time) (*Store, Loaded, error) {
	s := newStore(o)
	l := loader{
		in:    bufio.NewReaderSize(r, 1<<16),
		store: s,
		wall:  min(max(wall.UnixMicro(), 0), maxSnapshotClock),
	}
	if err := l.read(); err != nil {
		return nil, Loaded{}, err
	}
	after, source := l.now(), s.clock
	begin := source()
	s.clock = func() time.Duration { return after + source() - begin }
	s.start(o)
	return s, l.loaded, nil
}

// A loader reads a snapshot into a store that no caller has yet.
type loader struct {
	in     *bufio.Reader
	sum    uint32
	store  *Store
	wall   int64 // now
	loaded Loaded

	begin, end int64 // the saved clock, microseconds
	newest     int64 // clock of any log
	key        []byte
	packed     []byte
}

func badSnapshot(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrBadSnapshot, fmt.Errorf(format, args...))
}

// next reads n bytes into b, and replaces what was in b. n may be wrong, so next allocates
// only for bytes that it has read.
func (l *loader) next(b []byte, n uint32) ([]byte, error) {
	const chunk = 1 << 16
	b = b[:0]
	for uint64(len(b)) < uint64(n) {
		from := len(b)
		b = append(b, make([]byte, min(uint64(n)-uint64(from), chunk))...)
		if _, err := io.ReadFull(l.in, b[from:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return b, badSnapshot("it is cut off: it ends before its end")
		} else if err != nil {
			return b, fmt.Errorf("memstore: loading: %w", err)
		}
	}
	l.sum = crc32.Update(l.sum, castagnoli, b)
	return b, nil
}

func (l *loader) read() error {
	if err := l.readHeader(); err != nil {
		return err
	}
	var count uint64
	for ; ; count++ {
		if more, err := l.readLog(); err != nil {
			return err
		} else if !more {
			break
		}
	}
	return l.readTrailer(count)
}

func (l *loader) readHeader() error {
	// Bytes that begin like a snapshot are cut off; other bytes are not a snapshot.
	switch begin, err := l.in.Peek(len(snapshotMagic)); {
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("memstore: loading: %w", err)
	case len(begin) == 0:
		return badSnapshot("it is no snapshot: it is empty")
	case !strings.HasPrefix(snapshotMagic, string(begin)):
		return badSnapshot("it is no snapshot but something else")
	}
	b, err := l.next(l.packed, uint32(len(snapshotMagic)+1))
	l.packed = b
	switch {
	case err != nil:
		return err
	case b[len(snapshotMagic)] != snapshotVersion:
		return badSnapshot("its version is %d, and this program reads %d only", b[len(snapshotMagic)], snapshotVersion)
	}
	if b, err = l.next(b, 8); err != nil {
		return err
	}
	begin := binary.BigEndian.Uint64(b)
	if begin > maxSnapshotClock {
		return badSnapshot("its clock of %d us cannot be", begin)
	}
	l.begin, l.end = int64(begin), int64(begin) // until the trailer says more
	return nil
}

// now returns the clock of the store that is loaded.
func (l *loader) now() time.Duration { return time.Duration(max(l.wall, l.end)) * time.Microsecond }

// readLog reads a log. It returns false at the end of the logs.
func (l *loader) readLog() (bool, error) {
	b, err := l.next(l.packed, 4)
	l.packed = b
	if err != nil {
		return false, err
	}
	keyBytes := binary.BigEndian.Uint32(b)
	if keyBytes == 0 {
		return false, nil
	}
	if b, err = l.next(b, logHeaderBytes-4); err != nil {
		return false, err
	}
	var (
		packedBytes = binary.BigEndian.Uint32(b)
		word        = binary.BigEndian.Uint64(b[4:])
		limit       = packed.Level(binary.BigEndian.Uint32(b[12:]))
		micros      = word & (1<<policyBits - 1)
		id          = window.LogID{Policy: name(word).policy(), Scope: name(word).scope()}
	)
	switch {
	case id.Policy >= holdsOf+window.InFlight:
		return false, badSnapshot("it has a log of the policy %d, which this program does not know", id.Policy)
	case id.Policy == onceRecords:
		id.Window = name(word).window()
	case micros > uint64(window.MaxWindow.Microseconds()):
		return false, badSnapshot("a window of %d us cannot be", micros)
	case id.Policy == window.InFlight || id.Policy == streams:
		if micros != 0 {
			return false, badSnapshot("a log of requests in flight has a window of %d us", micros)
		}
	case micros < uint64(window.MinWindow.Microseconds()):
		return false, badSnapshot("a window of %d us is shorter than %v", micros, window.MinWindow)
	default:
		id.Window = time.Duration(micros) * time.Microsecond
	}
	if l.key, err = l.next(l.key, keyBytes); err != nil {
		return false, err
	}
	if l.packed, err = l.next(l.packed, packedBytes); err != nil {
		return false, err
	}
	id.Key = string(l.key)
	if err := l.judge(id); err != nil {
		return false, err
	}
	return true, l.take(id, limit)
}

// judge returns an error that says what is wrong with the bytes of a log.
func (l *loader) judge(id window.LogID) error {
	if id.Policy == streams {
		s, ok := streamrecord.Read(l.packed)
		if !ok || len(id.Key) != streamIDLen || s.Until > maxSnapshotClock/1000 {
			return badSnapshot("what it says of a stream cannot be")
		}
		return nil
	}
	if id.Policy == onceRecords {
		r, ok := packed.ReadOnceRecord(l.packed)
		if !ok || r.Ends > maxSnapshotClock+window.MaxOnce.Microseconds() {
			return badSnapshot("an idempotency record cannot be")
		}
		return nil
	}
	contents, err := packed.Decode(l.packed)
	if id.Policy >= holdsOf {
		id = window.LogID{Policy: window.InFlight}
	}
	switch {
	case err != nil:
		return badSnapshot("%w", err)
	case contents.Policy != id.Policy:
		return badSnapshot("a log of %v cannot be one of %v", contents.Policy, id.Policy)
	case !packed.Is(l.packed, id) && id.Policy == window.Sliding:
		return badSnapshot("a log in units of %v cannot be of a window of %v", contents.Unit, id.Window)
	case !packed.Is(l.packed, id):
		return badSnapshot("a log of %v cannot be of a window of %v", id.Policy, id.Window)
	}
	if n := len(contents.Entries); n > 0 && contents.Entries[n-1].At > contents.Clock+id.Window+contents.Unit {
		return badSnapshot("an entry of a log is later than can be")
	}
	l.newest = max(l.newest, contents.Clock.Microseconds())
	return nil
}

// take adds a log to the store, if a hit in it counts and there is room.
func (l *loader) take(id window.LogID, limit packed.Level) error {
	i, hash := l.store.shardOf(id)
	sh := &l.store.shards[i]
	if sh.find(id, hash) != nil {
		return badSnapshot("a log is there twice")
	}
	var c candidate
	key, n := address(id)
	if c.judge(&log{key: key, name: n, packed: l.packed, limit: limit}, l.now().Microseconds()) == expired {
		l.loaded.Expired++
		return nil
	}
	if !sh.within(sh.limit, logBytes+int64(len(id.Key)+len(l.packed))) {
		l.loaded.Dropped++
		return nil
	}
	kept := sh.add(id, hash)
	kept.limit = limit
	sh.keep(kept, append(make([]byte, 0, len(l.packed)), l.packed...))
	l.loaded.Logs++
	return nil
}

func (l *loader) readTrailer(count uint64) error {
	b, err := l.next(l.packed, trailerBytes-4)
	if err != nil {
		return err
	}
	saved, end := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	want := l.sum
	if b, err = l.next(b, 4); err != nil {
		return err
	}
	switch got := binary.BigEndian.Uint32(b); {
	case got != want:
		return badSnapshot("its checksum is %08x, and that of its content %08x", got, want)
	case saved != count:
		return badSnapshot("it has %d logs and says %d", count, saved)
	case end > maxSnapshotClock || int64(end) < l.begin:
		return badSnapshot("it ends at %d us and begins at %d us", end, l.begin)
	case l.newest > int64(end)+window.MaxWindow.Microseconds():
		// A log is ahead of the store's clock if Options.Clock was set back.
		return badSnapshot("a log is as of %d us, and the store as of %d us", l.newest, end)
	}
	if _, err := l.in.ReadByte(); !errors.Is(err, io.EOF) {
		return badSnapshot("it goes on after its end")
	}
	l.end = int64(end)
	return nil
}
