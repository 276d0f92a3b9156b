package unary

import (
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // registers the one compressor that is understood
)

// maxPacked bounds the length of a compressed message. To unpack a byte that no other
// byte foretells takes 10 ns, so a message of this length takes 5 ms.
const maxPacked = 512 << 10

// What a message may unpack to: unpacksAnyway bytes, or unpacksBy times its own
// length. A message of real texts unpacks to less than twenty times its length, one of
// nothing but zeros to a thousand times.
const (
	unpacksAnyway = 512 << 10
	unpacksBy     = 64
)

// unpackedLength returns how long a message is unpacked, which is what its last four
// bytes say, or -1 if it is not compressed by gzip. A message that says it wrong does
// not unpack.
func unpackedLength(packed string) int64 {
	const header, trailer = 10, 8
	if len(packed) < header+trailer || packed[:2] != "\x1f\x8b" {
		return -1
	}
	return int64(binary.LittleEndian.Uint32([]byte(packed[len(packed)-4:])))
}

func mayUnpackTo(packed int) int { return max(unpacksAnyway, unpacksBy*packed) }

var errPackedTooLong = errors.New("the compressed message is longer than 512 KiB; send less in one message")

var errUnpacksToMuch = errors.New("the message unpacks to more than 512 KiB and 64 times its length; send it without compression")

// bounded is the gzip of grpc-go, but it unpacks no more than mayUnpackTo says, of no
// more than maxPacked bytes.
type bounded struct{ encoding.Compressor }

// The program has one registry of compressors, which grpc-go's servers use too.
func init() { encoding.RegisterCompressor(bounded{encoding.GetCompressor(gzipped)}) }

// Decompress implements encoding.Compressor.
func (b bounded) Decompress(r io.Reader) (io.Reader, error) {
	in := &counting{r: r}
	out, err := b.Compressor.Decompress(in)
	if err != nil {
		return nil, err
	}
	return &unpacking{counting{r: out}, in}, nil
}

// counting counts what is read.
type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// unpacking is what comes out of a compressed message.
type unpacking struct {
	counting
	packed *counting
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.counting.Read(p)
	if u.packed.n > maxPacked {
		return 0, errPackedTooLong
	}
	if u.n > mayUnpackTo(u.packed.n) {
		return 0, errUnpacksToMuch
	}
	return n, err
}
