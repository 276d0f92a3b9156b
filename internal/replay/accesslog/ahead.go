package accesslog

import "io"

const (
	aheadBytes  = 128 << 10
	aheadBlocks = 3
)

// An ahead reads a stream on a goroutine of its own, so that a packed file is unpacked while its
// lines are parsed. Only one goroutine may read it.
type ahead struct {
	full, free chan []byte
	done       <-chan struct{} // ends it
	gone       chan struct{}
	err        error // behind the last block

	block, rest []byte // rest is the part of block that is still to be given
}

// newAhead begins to read a stream. It hands over blocks of least bytes or more, unless the stream
// ends: of a stream that may wait for its next bytes, least is 1.
func newAhead(r io.Reader, least int, done <-chan struct{}) *ahead {
	a := &ahead{full: make(chan []byte, aheadBlocks), free: make(chan []byte, aheadBlocks), done: done, gone: make(chan struct{})}
	for range aheadBlocks {
		a.free <- nil
	}
	go a.run(r, least)
	return a
}

// run reads the stream until its end, an error, or done.
func (a *ahead) run(r io.Reader, least int) {
	defer close(a.gone)
	defer close(a.full)
	for a.err == nil {
		var b []byte
		select {
		case b = <-a.free:
		case <-a.done:
			return
		}
		if b == nil {
			b = make([]byte, aheadBytes)
		}
		n, more := 0, 0
		for n < least && a.err == nil {
			more, a.err = r.Read(b[n:])
			n += more
		}
		a.full <- b[:n] // there is room for each block
	}
}

// Read implements [io.Reader].
func (a *ahead) Read(b []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.block != nil {
			a.free <- a.block[:cap(a.block)] // there is room for each block
			a.block = nil
		}
		block, ok := <-a.full
		switch {
		case !ok && a.err != nil:
			return 0, a.err
		case !ok:
			return 0, io.EOF // done
		}
		a.block, a.rest = block, block
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}
