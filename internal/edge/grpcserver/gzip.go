package grpcserver

import (
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // registers the compressor that boundedGzip replaces
)

const (
	// maxPacked bounds the length of a compressed message that grpc-go reads. To unpack a byte of
	// noise takes 10 ns, so a message of this length takes 5 ms.
	maxPacked = 512 << 10
	// A message may unpack to mayUnpack bytes, or to mayUnpackTimes its length. A message of
	// real texts unpacks to less than twenty times its length, one of zeros to a thousand times.
	mayUnpack      = 512 << 10
	mayUnpackTimes = 64
)

var (
	errPackedTooLong  = errors.New("the compressed message is longer than 512 KiB; send less in one message")
	errUnpacksTooMuch = errors.New("the message unpacks to more than 512 KiB and 64 times its length; send it without compression")
)

// boundedGzip is the gzip of grpc-go, but it reads no more than maxPacked bytes, and unpacks no more
// than mayUnpack and mayUnpackTimes allow. The server of package unary reads nothing compressed.
type boundedGzip struct{ encoding.Compressor }

// The program has one registry of compressors.
func init() { encoding.RegisterCompressor(boundedGzip{encoding.GetCompressor(gzip.Name)}) }

// Decompress implements encoding.Compressor.
func (b boundedGzip) Decompress(packed io.Reader) (io.Reader, error) {
	in := &countingReader{Reader: packed}
	out, err := b.Compressor.Decompress(in)
	if err != nil {
		return nil, err
	}
	return &boundedReader{countingReader{Reader: out}, in}, nil
}

type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

type boundedReader struct {
	countingReader
	packed *countingReader
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.countingReader.Read(p)
	if b.packed.n > maxPacked {
		return 0, errPackedTooLong
	}
	if b.n > max(mayUnpack, mayUnpackTimes*b.packed.n) {
		return 0, errUnpacksTooMuch
	}
	return n, err
}
