package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/slidegate/slidegate/internal/text"
)

const (
	sampleBytes = 256 << 10 // of a file, to find out its format
	blockBytes  = 256 << 10 // read at once from a pipe
	batchBytes  = 256 << 10
	batchDepth  = 4
	maxWindow   = 128 << 20 // of zstd, as zstd --long has it
	// maxJump is how far a line may be ahead of the last ones before a second line must confirm it:
	// one line with a wrong time must not make all others late.
	maxJump = int64(time.Hour)
	// minEarly is how long a request may have lasted before the first line in any log.
	minEarly = int64(time.Minute)
)

// tooLong says what is wrong with a line above maxLine.
var tooLong = fmt.Sprintf("has more than %d bytes", maxLine)

// A file is one log.
type file struct {
	path   string
	index  int
	format *format // nil: the file is empty
	prefix *prefix
	likely bool // by the sample, the format and the prefix are not a guess
	o      *Options

	closer  io.Closer
	unpack  io.Closer
	stream  io.Reader // the lines, unpacked
	decoder *decoder
	scratch []byte // a record

	// mark is the time up to which the file has been read; ahead is the time of a line that jumped.
	mark, ahead int64
	first       int64 // the time in the first line
	records     int
	fine        bool // a record has parts of a second
	ended       bool
	err         error

	batches chan *batch
	done    chan struct{}
	end     sync.Once
	started bool
	gone    chan struct{}
}

// A batch is a part of a file, read.
type batch struct {
	Stats   // of its lines
	records []held
	bytes   int
	fine    bool // a record has parts of a second
}

// openFile finds out the format of a file.
func openFile(path string, index int, o *Options, formats []*format) (*file, error) {
	f := &file{path: path, index: index, o: o, batches: make(chan *batch, batchDepth), done: make(chan struct{}), gone: make(chan struct{})}
	regular, err := f.open()
	if err != nil {
		return nil, err
	}
	sample, rest, err := f.sample(regular, formats)
	if err == nil {
		err = f.detect(sample, formats, rest)
	}
	if err != nil {
		f.closeRaw()
		return nil, err
	}
	if regular {
		f.closeRaw()
		return f, nil
	}
	f.stream = io.MultiReader(bytes.NewReader(sample), f.stream)
	return f, nil
}

// open opens the file and finds out how it is packed. It reports whether the file can be opened
// again.
func (f *file) open() (regular bool, err error) {
	in, regular, err := f.openRaw()
	if err != nil {
		return false, err
	}
	head, err := readHead(in, 4)
	if err != nil && !errors.Is(err, io.EOF) {
		f.closeRaw()
		return false, pathError(f.path, "cannot be read: %w", err)
	}
	if err := f.unpacked(head, io.MultiReader(bytes.NewReader(head), in)); err != nil {
		f.closeRaw()
		return false, pathError(f.path, "cannot be unpacked: %w", err)
	}
	return regular, nil
}

// openRaw opens the file as it is on disk.
func (f *file) openRaw() (in io.Reader, regular bool, err error) {
	info, err := os.Stat(f.path)
	switch {
	case f.path == "-":
		if in = f.o.Stdin; f.o.Done != nil {
			piped := interruptible(f.o.Done, func() (io.ReadCloser, error) { return io.NopCloser(f.o.Stdin), nil })
			in, f.closer = piped, piped
		}
		return in, false, nil
	case err == nil && info.IsDir():
		return nil, false, pathError(f.path, "is a directory; name the files in it")
	case err == nil && !info.Mode().IsRegular() && f.o.Done != nil:
		// To open a named pipe waits for a writer.
		piped := interruptible(f.o.Done, func() (io.ReadCloser, error) { return os.Open(f.path) })
		f.closer = piped
		return piped, false, nil
	}
	opened, err := os.Open(f.path)
	if err == nil {
		info, err = opened.Stat()
	}
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, false, pathError(f.path, "cannot be opened: %w", err)
	}
	f.closer = opened
	return opened, info.Mode().IsRegular(), nil
}

// errDone ends reads when Options.Done is closed.
var errDone = errors.New("the replay was interrupted")

// interruptible returns a reader whose reads fail when done is closed or it is closed, although
// open, or a read of what it opens, still waits.
func interruptible(done <-chan struct{}, open func() (io.ReadCloser, error)) *io.PipeReader {
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		select {
		case <-done:
			in.CloseWithError(errDone)
		case <-ended:
		}
	}()
	go func() {
		defer close(ended)
		from, err := open()
		if err == nil {
			_, err = io.CopyBuffer(in, struct{ io.Reader }{from}, make([]byte, blockBytes))
			_ = from.Close() // it was only read
		}
		in.CloseWithError(err) // nil is io.EOF
	}()
	return out
}

// readHead reads up to n bytes.
func readHead(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return b[:got], err
}

// unpacked sets the stream of lines, by the first bytes of the file.
func (f *file) unpacked(head []byte, all io.Reader) error {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(all)
		if err != nil {
			return err
		}
		f.stream, f.unpack = z, z
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		closer := z.IOReadCloser()
		f.stream, f.unpack = closer, closer
	default:
		f.stream = all
	}
	return nil
}

// closeRaw closes the file. Errors of closing say nothing of a file that was only read.
func (f *file) closeRaw() {
	if f.unpack != nil {
		_ = f.unpack.Close()
		f.unpack = nil
	}
	if f.closer != nil {
		_ = f.closer.Close()
		f.closer = nil
	}
	f.stream = nil
}

// sample reads the beginning of a file: of a regular file as much as may be, of another only as much
// as the format needs, because more may come late. rest reports whether the file has more.
func (f *file) sample(regular bool, formats []*format) (sample []byte, rest bool, err error) {
	sample = make([]byte, 0, 4<<10)
	for len(sample) < sampleBytes || len(sample) <= maxLine && bytes.IndexByte(sample, '\n') < 0 {
		if len(sample) == cap(sample) {
			sample = append(sample, make([]byte, len(sample))...)[:len(sample)]
		}
		n, err := f.stream.Read(sample[len(sample):cap(sample)])
		sample = sample[:len(sample)+n]
		if errors.Is(err, io.EOF) {
			return sample, false, nil
		}
		if err != nil {
			// If lines came before the error, they are read, and then the error is reported.
			if bytes.IndexByte(sample, '\n') >= 0 {
				return sample, true, nil
			}
			return nil, false, f.broken(err, 0)
		}
		if !regular && bytes.IndexByte(sample, '\n') >= 0 && f.detect(sample, formats, true) == nil && f.likely {
			break
		}
	}
	return sample, true, nil
}

// broken returns the error of a file that cannot be read further.
func (f *file) broken(err error, lines int64) error {
	what := "cannot be read further"
	if f.unpack != nil {
		what = "cannot be unpacked further"
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("its end is missing")
		}
	}
	return pathError(f.path, "%s after line %d: %w", what, lines, err)
}

// detect sets the format and the prefix: those by which most lines of the sample can be read. Of
// several formats of Envoy's configuration it is the one by which they say most.
func (f *file) detect(sample []byte, formats []*format, rest bool) error {
	if rest {
		// The last line may go on.
		if i := bytes.LastIndexByte(sample, '\n'); i >= 0 {
			sample = sample[:i+1]
		}
	}
	sample, err := text.WithoutMark(sample)
	if err != nil {
		return pathError(f.path, "%w", err)
	}
	lines := 0
	for line := range bytes.Lines(sample) {
		if len(trimLine(line)) > 0 {
			lines++
		}
	}
	if lines == 0 && !rest {
		f.ended = true
		return nil
	}
	var best fit
	fault := ""
	for _, chain := range prefixesOf(sample) {
		for _, candidate := range formats {
			got, reason, err := candidate.fit(sample, chain, f.o.Want)
			if err != nil {
				return err
			}
			fault = cmp.Or(fault, reason)
			if got.better(best) || got.same(best) && candidate.written && got.values > best.values {
				best, f.format, f.prefix, f.mark = got, candidate, newPrefix(chain), got.mark
			}
		}
	}
	if f.format == nil {
		return f.unreadable(lines, formats, fault)
	}
	f.likely = best.likely > 0
	f.decoder, _ = f.format.newDecoder(f.o.Want)
	return nil
}

// A fit says how well a format and a prefix fit a sample.
type fit struct {
	likely int // lines that say something of a request, whose client is an address
	read   int // lines that can be read
	values int // in them
	mark   int64
}

func (a fit) better(b fit) bool {
	return a.likely > b.likely || a.likely == b.likely && a.read > b.read
}
func (a fit) same(b fit) bool { return a.likely == b.likely && a.read == b.read }

// fit reads a sample by the format, behind a prefix. fault says what is wrong with the first line
// that cannot be read.
func (c *format) fit(sample []byte, chain []int, want []Attribute) (got fit, fault string, err error) {
	d, err := c.newDecoder(append(slices.Clone(want), Method, PathOnly, Client))
	if err != nil {
		return got, "", err
	}
	p := newPrefix(chain)
	for line := range bytes.Lines(sample) {
		line, ok := p.strip(trimLine(line))
		if ok && len(line) == 0 {
			continue
		}
		at, is, reason := int64(0), isBroken, noPrefix
		switch {
		case !ok:
		case len(line) > maxLine:
			reason = tooLong
		default:
			at, is, reason = d.decode(line)
		}
		if is == isBroken {
			fault = cmp.Or(fault, reason)
			continue
		}
		if is == isRequest && (got.mark == 0 || at < got.mark) {
			got.mark = at
		}
		got.read++
		for i := range d.line.values {
			if d.line.values[i].State == Present {
				got.values++
			}
		}
		if d.likely(c.nginxTime) {
			got.likely++
		}
	}
	return got, fault, nil
}

// unreadable returns the error of a file of which no line can be read.
func (f *file) unreadable(lines int, formats []*format, fault string) error {
	var names []string
	for _, c := range formats {
		if len(names) == 0 || names[len(names)-1] != c.name {
			names = append(names, c.name)
		}
	}
	if len(formats) == 1 {
		return pathError(f.path, "none of the first %d lines can be read in the format %s: the first one %s. Give the format of the log, --format", lines, names[0], fault)
	}
	return pathError(f.path, "none of the first %d lines can be read in a format that is known (%s). Give the text of the log format (--format), or the fields of JSON (--map)", lines, strings.Join(names, ", "))
}

// withoutMark returns the beginning of a text without a byte-order mark.
func withoutMark(b []byte) []byte {
	if text, err := text.WithoutMark(b); err == nil {
		return text
	}
	return b
}

// trimLine returns a line without its end.
func trimLine(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// see moves the mark on.
func (f *file) see(at int64) {
	switch {
	case at <= f.mark:
	case at-f.mark <= maxJump:
		f.mark = at
	case f.ahead > 0 && at-f.ahead <= maxJump && f.ahead-at <= maxJump:
		f.mark, f.ahead = at, 0
	default:
		f.ahead = at
	}
}

// next returns the next batch, nil at the end.
func (f *file) next() *batch {
	if !f.started {
		f.started = true
		if f.stream == nil {
			if _, err := f.open(); err != nil {
				f.err = err
				close(f.gone)
				return nil
			}
		}
		go f.run()
	}
	return <-f.batches
}

// run reads the file and sends its batches.
func (f *file) run() {
	defer close(f.gone)
	defer close(f.batches)
	in := bufio.NewReaderSize(f.stream, maxLine+1)
	b := new(batch)
	for number := int64(1); ; number++ {
		// What is not read yet may come late.
		if buffered, _ := in.Peek(in.Buffered()); b.bytes >= batchBytes || bytes.IndexByte(buffered, '\n') < 0 {
			if b = f.send(b); b == nil {
				return
			}
		}
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			f.err = f.broken(err, number-1)
			f.send(b)
			return
		}
		if number == 1 {
			line = withoutMark(line)
		}
		if long {
			b.fault(f, number, tooLong)
		} else if line = trimLine(line); len(line) > 0 {
			f.add(b, line, number)
		}
		if err != nil {
			f.send(b)
			return
		}
	}
}

// add adds a line to a batch.
func (f *file) add(b *batch, line []byte, number int64) {
	line, ok := f.prefix.strip(line)
	if !ok {
		b.fault(f, number, noPrefix)
		return
	}
	if len(line) == 0 {
		return
	}
	at, is, fault := f.decoder.decode(line)
	switch is {
	case isBroken:
		b.fault(f, number, fault)
		return
	case isNoRequest:
		b.NoRequest++
	default:
		f.scratch = f.decoder.appendRecord(f.scratch[:0], f.index, number)
		b.records = append(b.records, held{at: at, record: bytes.Clone(f.scratch)})
		b.bytes += len(f.scratch)
		if f.decoder.isEnd {
			b.AtEnd++
		}
		if f.decoder.lacksAddress() {
			b.NoAddress++
		}
		if f.tooEarly(at, f.decoder.written) {
			b.TooEarly++
		}
		b.fine = b.fine || !f.decoder.isWhole
	}
	b.Lines++
}

// tooEarly reports whether a request started further before the first line than its own line is
// behind it, by its duration.
func (f *file) tooEarly(start, written int64) bool {
	if f.first == 0 {
		f.first = written
	}
	before := f.first - start
	return start < written && before > minEarly && before > written-f.first
}

func (b *batch) fault(f *file, number int64, reason string) {
	b.Lines++
	b.Broken++
	if len(b.Faults) < maxFaults {
		b.Faults = append(b.Faults, Fault{File: f.path, Line: number, Reason: reason})
	}
}

// send sends a batch and returns another one, nil if the file is closed.
func (f *file) send(b *batch) *batch {
	if b.Lines == 0 {
		return b
	}
	select {
	case f.batches <- b:
		return new(batch)
	case <-f.done:
		return nil
	}
}

// close ends the file.
func (f *file) close() {
	f.end.Do(func() { close(f.done) })
	if f.started {
		if f.path == "-" && f.closer == nil {
			return // a read of it cannot be ended
		}
		if f.closer != nil {
			_ = f.closer.Close() // ends a read that waits
			f.closer = nil
		}
		<-f.gone
	}
	f.closeRaw()
}
