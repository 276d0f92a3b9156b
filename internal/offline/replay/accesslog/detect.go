package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text"
)

// sampleBytes is how much of a file says its format, or its first line if that is longer.
const sampleBytes = 256 << 10

// sample reads the beginning of a file. rest reports whether the file has more.
func (f *file) sample() (sample []byte, rest bool, err error) {
	sample = make([]byte, maxLine+1)
	n, err := io.ReadFull(f.in.stream, sample)
	sample = sample[:n]
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return sample, false, nil
	case err != nil && bytes.IndexByte(sample, '\n') < 0: // lines before the error are read first
		return nil, false, f.in.broken(err, 0)
	}
	return sample, true, nil
}

// detect sets the format and the prefix: those by which most lines of the sample can be read. Of
// several formats of Envoy's configuration it is the one by which they say most.
func (f *file) detect(sample []byte, formats []*format, rest bool) error {
	if rest || len(sample) > sampleBytes { // the last line may go on
		if i := bytes.LastIndexByte(sample[:min(len(sample), sampleBytes)], '\n'); i >= 0 {
			sample = sample[:i+1]
		}
	}
	sample, err := text.WithoutMark(sample)
	if err != nil {
		return pathError(f.in.path, "%w", err)
	}
	lines := 0
	for line := range bytes.Lines(sample) {
		if len(trimLine(line)) > 0 {
			lines++
		}
	}
	if lines == 0 && !rest {
		f.seen.ended = true
		return nil
	}
	var best fit
	fault := ""
	for _, chain := range prefixesOf(sample) {
		for _, candidate := range formats {
			got, reason, err := candidate.fit(sample, chain, f.want)
			if err != nil {
				return err
			}
			fault = cmp.Or(fault, reason)
			if got.better(best) || got.same(best) && candidate.written && got.values > best.values {
				best, f.format, f.prefix, f.seen.mark = got, candidate, newPrefix(chain), got.mark
			}
		}
	}
	if f.format == nil {
		return f.unreadable(lines, formats, fault)
	}
	f.decoder, _ = f.format.newDecoder(f.want)
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
		return pathError(f.in.path, "none of the first %d lines can be read in the format %s: the first one %s. Give the format of the log, --format", lines, names[0], fault)
	}
	return pathError(f.in.path, "none of the first %d lines can be read in a format that is known (%s). Give the text of the log format (--format), or the fields of JSON (--map)", lines, strings.Join(names, ", "))
}
