package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slidegate/slidegate/internal/text"
)

// tooLong says what is wrong with a line above maxLine.
var tooLong = fmt.Sprintf("has more than %d bytes", maxLine)

const (
	batchBytes = 256 << 10
	batchDepth = 4
	// minEarly is how long a request may have lasted before the first line in any log.
	minEarly = int64(time.Minute)
)

// A file is one log. A goroutine reads it in batches.
type file struct {
	in      input
	index   int
	want    []Attribute
	format  *format // nil: the file is empty
	prefix  *prefix
	decoder *decoder

	scratch []byte // a record
	first   int64  // the time in the first line
	err     error  // why it could not be read to its end
	seen    progress

	batches chan *batch   // from the goroutine to the reader; nil: it has not begun
	done    chan struct{} // closed if no more are wanted
}

// A batch is a part of a file, read.
type batch struct {
	Stats   // of its lines
	records []waiting
	bytes   int
	fine    bool // a record has parts of a second
}

// openFile finds out the format of a file.
func openFile(path string, index int, o *Options, formats []*format) (*file, error) {
	f := &file{in: input{path: path, stdin: o.Stdin, done: o.Done}, index: index, want: o.Want, done: make(chan struct{})}
	regular, err := f.in.open()
	if err != nil {
		return nil, err
	}
	sample, rest, err := f.sample()
	if err == nil {
		err = f.detect(sample, formats, rest)
	}
	if err != nil {
		f.in.close()
		return nil, err
	}
	if regular {
		f.in.close()
		return f, nil
	}
	f.in.stream = io.MultiReader(bytes.NewReader(sample), f.in.stream)
	return f, nil
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

// next returns the next batch, nil at the end.
func (f *file) next() *batch {
	if f.batches == nil {
		f.batches = make(chan *batch, batchDepth)
		if f.in.stream == nil {
			if _, f.err = f.in.open(); f.err != nil {
				close(f.batches)
				return nil
			}
		}
		go f.run()
	}
	return <-f.batches
}

// run reads the file and sends its batches.
func (f *file) run() {
	defer close(f.batches)
	in := bufio.NewReaderSize(f.in.stream, maxLine+1)
	b := new(batch)
	for number := int64(1); ; number++ {
		if b.bytes >= batchBytes {
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
			f.err = f.in.broken(err, number-1)
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
		b.records = append(b.records, waiting{at: at, record: bytes.Clone(f.scratch)})
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
		b.Faults = append(b.Faults, Fault{File: f.in.path, Line: number, Reason: reason})
	}
}

// send sends a batch and returns another one, nil if the file is closed.
func (f *file) send(b *batch) *batch {
	select {
	case f.batches <- b:
		return new(batch)
	case <-f.done:
		return nil
	}
}

// close ends the file.
func (f *file) close() {
	close(f.done)
	if f.batches != nil {
		if f.in.closer != nil {
			_ = f.in.closer.Close() // ends a read that waits
		}
		for range f.batches {
			continue // until the goroutine has ended
		}
	}
	f.in.close()
}
