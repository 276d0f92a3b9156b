package unary

import (
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // registers the only compressor that is understood
)

// maxPacked bounds the length of a compressed message. To unpack a byte of noise takes
// 10 ns, so a message of this length takes 5 ms.
const maxPacked = 512 << 10

// mostPacked returns how long a compressed message may be if most bytes may be sent.
func mostPacked(most int) int { return min(most/2, maxPacked) }

// A message may unpack to mayUnpack bytes, or to mayUnpackTimes its own length. A
// message of real texts unpacks to less than twenty times its length, a message of zeros
// to a thousand times.
const (
	mayUnpack      = 512 << 10
	mayUnpackTimes = 64
)

// unpackedLength returns the length that the last four bytes of a gzip message announce,
// or -1 if the message is not gzip. A message with another length does not unpack.
func unpackedLength(packed string) int64 {
	const header, trailer = 10, 8
	if len(packed) < header+trailer || packed[:2] != "\x1f\x8b" {
		return -1
	}
	return int64(binary.LittleEndian.Uint32([]byte(packed[len(packed)-4:])))
}

func mayUnpackTo(packed int) int { return max(mayUnpack, mayUnpackTimes*packed) }

var (
	errPackedTooLong  = errors.New("the compressed message is longer than 512 KiB; send less in one message")
	errUnpacksTooMuch = errors.New("the message unpacks to more than 512 KiB and 64 times its length; send it without compression")
)

// boundedGzip is the gzip of grpc-go, but it reads no more than maxPacked bytes and
// unpacks only as much as mayUnpackTo allows.
type boundedGzip struct{ encoding.Compressor }

// The program has one registry of compressors, which grpc-go's servers use too.
func init() { encoding.RegisterCompressor(boundedGzip{encoding.GetCompressor(gzipped)}) }

// Decompress implements encoding.Compressor.
func (b boundedGzip) Decompress(packed io.Reader) (io.Reader, error) {
	in := &countingReader{Reader: packed}
	out, err := b.Compressor.Decompress(in)
	if err != nil {
		return nil, err
	}
	return &boundedReader{countingReader{Reader: out}, in}, nil
}

// A countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// A boundedReader reads what comes out of a compressed message.
type boundedReader struct {
	countingReader
	packed *countingReader
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.countingReader.Read(p)
	if b.packed.n > maxPacked {
		return 0, errPackedTooLong
	}
	if b.n > mayUnpackTo(b.packed.n) {
		return 0, errUnpacksTooMuch
	}
	return n, err
}
