package accesslog

import (
	"bytes"
	"errors"
	"io"
)

// Errors of lines.next that are not the end.
var (
	errLong = errors.New("the line is too long")
	// errWait comes before a read, which may wait.
	errWait = errors.New("all lines that were read are given")
)

// lines splits a stream into lines.
type lines struct {
	r          io.Reader
	buf        []byte
	start, end int
	scanned    int // up to where the line that begins at start has no end
	skipping   bool
	waited     bool
	err        error
}

// next returns the next line with its end. The line is valid until the next call. A line of more
// than maxLine bytes is errLong.
func (l *lines) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.scanned+i+1]
			l.start = l.scanned + i + 1
			l.scanned = l.start
			if l.skipping || len(line) > maxLine {
				l.skipping = false
				return nil, errLong
			}
			return line, nil
		}
		l.scanned = l.end
		if l.end-l.start > maxLine {
			l.skipping = true
		}
		if l.skipping {
			l.start, l.end, l.scanned = 0, 0, 0
		}
		if l.err != nil {
			return l.last()
		}
		if !l.waited {
			l.waited = true
			return nil, errWait
		}
		l.waited = false
		l.read()
	}
}

// last returns the line that has no end, if there is one, and then the error.
func (l *lines) last() ([]byte, error) {
	if l.skipping {
		l.skipping = false
		return nil, errLong
	}
	line := l.buf[l.start:l.end]
	l.start = l.end
	if len(line) > 0 && errors.Is(l.err, io.EOF) {
		return line, nil
	}
	return nil, l.err
}

// read reads more, and makes room for it.
func (l *lines) read() {
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.end -= l.start
		l.start, l.scanned = 0, l.end
	}
	if len(l.buf)-l.end < blockBytes {
		l.buf = append(l.buf[:l.end], make([]byte, max(blockBytes, l.end))...)
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = err
}
