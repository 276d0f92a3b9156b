package accesslog

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/slidegate/slidegate/internal/clientaddr"
)

// A prefix strips from lines what another program has put before or around them: a container
// runtime, syslog, a log shipper, or a web server that writes the virtual host first. All lines of a
// file have the same prefix. It is not safe for concurrent use.
type prefix struct {
	steps []int // of the table, the outermost first
	json  *jsonParser
	out   fields

	// Of the last line: it goes on in the next line, and it is of stderr.
	part, stderr bool
	// ends is true if a text in JSON had its line end. Then a text without it goes on.
	ends  bool
	begun [2][]byte // the parts of a line of stdout, and of one of stderr
}

// steps are the known prefixes. Each returns a line without it, or false if the line does not have
// it.
var steps = []func(p *prefix, line []byte) ([]byte, bool){
	(*prefix).field, (*prefix).runtime, syslog, stamped, pod, service, virtualHost,
}

// wrappers are the names of fields that have a line: of Docker and Fluent Bit, of Vector and Elastic,
// of journald, of Google Cloud, and of Loki.
var wrappers = []string{"log", "message", "MESSAGE", "textPayload", "line"}

const (
	maxSteps  = 4
	maxChains = 16 // prefixes that are tried
	noPrefix  = "lacks what the first lines have before the request"
	stdoutTag = " stdout "
	stderrTag = " stderr "
)

func newPrefix(chain []int) *prefix {
	names := append(slices.Clone(wrappers), "stream", "logtag")
	return &prefix{steps: chain, json: newJSONParser(names), out: fields{values: make([]Value, len(names))}}
}

// prefixesOf returns the prefixes that lines of a sample may have, the longest first, and at last none.
func prefixesOf(sample []byte) (chains [][]int) {
	p := newPrefix(nil)
	for line := range bytes.Lines(sample) {
		line, chain := trimLine(line), []int(nil)
		for len(chain) < maxSteps && len(chains) < maxChains {
			at := slices.IndexFunc(steps, func(step func(*prefix, []byte) ([]byte, bool)) bool {
				rest, ok := step(p, line)
				if ok {
					line = bytes.Clone(rest)
				}
				return ok
			})
			if at < 0 {
				break
			}
			chain = append(slices.Clip(chain), at)
			if !slices.ContainsFunc(chains, func(have []int) bool { return slices.Equal(have, chain) }) {
				chains = append(chains, chain)
			}
		}
	}
	slices.SortStableFunc(chains, func(a, b []int) int { return len(b) - len(a) })
	return append(chains, nil)
}

// strip returns a line without its prefix. It returns isPart for a line that goes on in the next
// one, and isBroken for a line without the prefix. The line is valid until the next call.
func (p *prefix) strip(line []byte) ([]byte, outcome) {
	if len(p.steps) == 0 {
		return line, isRequest
	}
	p.part, p.stderr = false, false
	for _, i := range p.steps {
		rest, ok := steps[i](p, line)
		if !ok {
			return nil, isBroken
		}
		line = rest
	}
	begun := &p.begun[0]
	if p.stderr {
		begun = &p.begun[1]
	}
	switch {
	case p.part:
		if len(*begun) <= maxLine { // a longer one is broken at its end
			*begun = append(*begun, line...)
		}
		return nil, isPart
	case len(*begun) > 0:
		line = append(*begun, line...)
		*begun = line[:0]
	}
	return line, isRequest
}

// field returns the text of a field of JSON.
func (p *prefix) field(line []byte) ([]byte, bool) {
	if len(line) == 0 || line[0] != '{' {
		return nil, false
	}
	clear(p.out.values)
	if p.json.parse(line, &p.out) != "" {
		return nil, false
	}
	at := slices.IndexFunc(p.out.values[:len(wrappers)], func(v Value) bool { return v.State == Present })
	if at < 0 {
		return nil, false
	}
	text := p.out.values[at].Text
	whole := text[len(text)-1] == '\n'
	p.ends = p.ends || whole
	p.part = p.ends && !whole || string(p.out.values[len(wrappers)+1].Text) == "P"
	p.stderr = string(p.out.values[len(wrappers)].Text) == "stderr"
	return trimLine(text), true
}

// runtime strips what containerd and CRI-O write: a time, the stream, and F or, for a line that goes
// on, P.
func (p *prefix) runtime(line []byte) ([]byte, bool) {
	rest := line[stampWidth(line):]
	if len(rest) == len(line) || !bytes.HasPrefix(rest, []byte(stdoutTag)) && !bytes.HasPrefix(rest, []byte(stderrTag)) {
		return nil, false
	}
	tags, text, ok := bytes.Cut(rest[len(stdoutTag):], []byte{' '})
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	if !ok || string(tag) != "F" && string(tag) != "P" {
		return nil, false
	}
	p.part, p.stderr = tag[0] == 'P', rest[len(" std")] == 'e'
	return text, true
}

// syslog strips the head of RFC 5424 or RFC 3164, with its priority or without, as rsyslog and
// journalctl write it too.
func syslog(_ *prefix, line []byte) ([]byte, bool) {
	if len(line) > 0 && line[0] == '<' {
		end := skipDigits(line, 1)
		if end == 1 || end > 4 || end == len(line) || line[end] != '>' {
			return nil, false
		}
		if line = line[end+1:]; bytes.HasPrefix(line, []byte("1 ")) {
			return structured(line[2:])
		}
	}
	n := stampWidth(line)
	if n == 0 {
		n = oldStampWidth(line)
	}
	if n == 0 || n == len(line) || line[n] != ' ' {
		return nil, false
	}
	rest := line[n+1:]
	for range 2 { // the host, which may be absent, and the program
		var word []byte
		word, rest, _ = bytes.Cut(rest, []byte{' '})
		if i := indexByte(word, ':'); i > 0 && i == len(word)-1 {
			return bytes.TrimLeft(rest, " "), true
		}
	}
	return nil, false
}

// structured strips the head of RFC 5424 behind its version: five words, and data in brackets.
func structured(line []byte) ([]byte, bool) {
	for range 5 {
		i := indexByte(line, ' ')
		if i <= 0 {
			return nil, false
		}
		line = line[i+1:]
	}
	rest, ok := bytes.CutPrefix(line, []byte{'-'})
	for i := 1; len(rest) > 0 && rest[0] == '['; i++ {
		switch {
		case i == len(rest):
			return nil, false
		case rest[i] == ']' && rest[i-1] != '\\':
			rest, i, ok = rest[i+1:], 0, true
		}
	}
	return withoutMark(bytes.TrimLeft(rest, " ")), ok
}

// stamped strips the time that kubectl logs --timestamps and docker logs --timestamps write.
func stamped(_ *prefix, line []byte) ([]byte, bool) {
	n := stampWidth(line)
	if n == 0 || n == len(line) || line[n] != ' ' {
		return nil, false
	}
	return line[n+1:], true
}

// pod strips the name that kubectl logs --prefix writes.
func pod(_ *prefix, line []byte) ([]byte, bool) {
	if !bytes.HasPrefix(line, []byte("[pod/")) {
		return nil, false
	}
	_, rest, ok := bytes.Cut(line, []byte("] "))
	return rest, ok
}

// service strips the name that docker compose logs writes.
func service(_ *prefix, line []byte) ([]byte, bool) {
	name, rest, ok := bytes.Cut(line, []byte(" | "))
	name = bytes.TrimRight(name, " ")
	rest = bytes.TrimPrefix(rest, []byte("\x1b[0m")) // the end of the name's colour
	return rest, ok && len(name) > 0 && indexByte(name, ' ') < 0 && !isAddress(name)
}

// virtualHost strips the host, with its port or without, that stands before the client.
func virtualHost(_ *prefix, line []byte) ([]byte, bool) {
	word, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(word) == 0 || isAddress(word) || bytes.ContainsAny(word, `"{}|,;=`) {
		return nil, false
	}
	host := clientaddr.Host(word)
	port := portOf(word)
	if len(port) > 0 && skipDigits(port, 0) == len(port) && len(host) > 0 {
		return rest, true
	}
	next, _, _ := bytes.Cut(rest, []byte{' '})
	return rest, isAddress(next)
}

// stampWidth returns the length of a time such as 2026-11-23T09:30:29.123Z at the start of a line,
// with a zone or without, or 0.
func stampWidth(b []byte) int {
	const least = len("2006-01-02T15:04:05")
	if len(b) < least || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || skipDigits(b, 0) != 4 {
		return 0
	}
	n := least
	for n < len(b) && b[n] != ' ' {
		if bytes.IndexByte([]byte("0123456789.,:+-Z"), b[n]) < 0 {
			return 0
		}
		n++
	}
	return n
}

// oldStampWidth returns the length of a time such as May  6 01:50:01 at the start of a line, or 0.
func oldStampWidth(b []byte) int {
	const least = len("Jan  2 15:04:05")
	if len(b) < least || b[3] != ' ' || b[6] != ' ' || b[9] != ':' || b[12] != ':' {
		return 0
	}
	if m := new(moment); m.takeWord(timeStep{conversion: 'b'}, b) == 0 {
		return 0
	}
	if n := least; n+1 < len(b) && b[n] == '.' {
		return skipDigits(b, n+1)
	}
	return least
}

// isAddress reports whether a text is an IP address.
func isAddress(b []byte) bool {
	dots, digits, part := 0, 0, 0
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9' && digits < 3:
			part, digits = part*10+int(c-'0'), digits+1
		case c == '.' && digits > 0 && part < 256:
			dots, digits, part = dots+1, 0, 0
		default:
			_, err := netip.ParseAddr(string(b))
			return err == nil
		}
	}
	return dots == 3 && digits > 0 && part < 256
}
