package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A textFormat is a format of lines of text: operators with text between them.
type textFormat struct {
	first   []byte // before the first operator
	ops     []textOp
	escapes bool // values have escapes such as \x22
}

// A textOp is one operator of a text format. Its slot is its index.
type textOp struct {
	attribute Attribute
	written   string    // as the format has it
	time      *timeSlot // nil: it is no time
	end       []byte    // the text behind it; empty: the end of the line
}

// A textParser takes lines of a text format apart. It accepts a line only if there is one way to do
// so: a client may send a header with the very text that separates values.
type textParser struct {
	*textFormat
	scratch []byte
}

func newTextParser(f *textFormat) *textParser { return &textParser{textFormat: f} }

// parse implements [parser].
func (p *textParser) parse(line []byte, out *fields) string {
	p.scratch = p.scratch[:0]
	if !bytes.HasPrefix(line, p.first) {
		return "does not begin as the format does"
	}
	i := len(p.first)
	before, boundary := p.first, 0 // the text before the value, and where it begins
	for slot := range p.ops {
		op := &p.ops[slot]
		n := -1
		switch {
		case slot == len(p.ops)-1:
			if bytes.HasSuffix(line[i:], op.end) {
				n = len(line) - i - len(op.end)
			}
		default:
			n = indexText(line[i:], op.end)
		}
		if n < 0 {
			return "lacks the text that the format has behind " + op.written
		}
		if op.time != nil {
			at, ok := op.time.read(line[i : i+n])
			for next := 0; !ok && next >= 0 && n < maxTime && len(op.end) > 0; { // the text behind a time may be in it
				if next = indexText(line[i+n+len(op.end):], op.end); next >= 0 {
					n += len(op.end) + next
					at, ok = op.time.read(line[i : i+n])
				}
			}
			if !ok {
				return "has no time where the format has one"
			}
			out.times[slot] = at
		} else if len(before) > 0 && slot > 0 && indexText(line[boundary+1:i+n], before) >= 0 {
			return "can be read in two ways: the text that the format has before " + op.written + " is in a value too"
		}
		text := line[i : i+n]
		if p.escapes && indexByte(text, '\\') >= 0 {
			text = p.unescape(text)
		}
		out.values[slot] = known(text)
		boundary, before = i+n, op.end
		i += n + len(op.end)
	}
	return ""
}

// indexText returns where text is in b, or -1.
func indexText(b, text []byte) int {
	if len(text) == 1 {
		return indexByte(b, text[0])
	}
	return bytes.Index(b, text)
}

// unescape returns a value without the escapes that nginx and Apache write.
func (p *textParser) unescape(raw []byte) []byte {
	start := len(p.scratch)
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '\\' && i+1 < len(raw) {
			switch next := raw[i+1]; next {
			case 'x':
				if v, err := strconv.ParseUint(string(raw[min(i+2, len(raw)):min(i+4, len(raw))]), 16, 8); err == nil {
					p.scratch = append(p.scratch, byte(v))
					i += 3
					continue
				}
			case '"', '\\':
				c = next
				i++
			}
		}
		p.scratch = append(p.scratch, c)
	}
	return slices.Clip(p.scratch[start:])
}

// newTextFormat compiles the text of a format: of Envoy with %OPERATORS%, or of nginx with
// $variables.
func newTextFormat(name, text string) (*format, error) {
	f := &format{name: name, text: new(textFormat)}
	text = strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\t`, "\t").Replace(text)
	text = strings.TrimRight(text, "\r\n")
	if strings.ContainsAny(text, "\r\n") {
		return nil, fmt.Errorf("the log format has a line end inside; a request must have one line")
	}
	split := nextVariable
	if strings.Contains(text, "%") {
		split = nextOperator
	} else {
		f.text.escapes = true
	}
	for {
		literal, op, rest, err := split(text)
		if err != nil {
			return nil, err
		}
		if op.attribute == "" {
			f.text.setEnd(literal)
			break
		}
		if err := f.text.add(literal, op); err != nil {
			return nil, err
		}
		f.slots = append(f.slots, op.attribute)
		text = rest
	}
	if len(f.slots) == 0 {
		return nil, fmt.Errorf("the log format has no %%OPERATORS%% of Envoy and no $variables of nginx")
	}
	return f, nil
}

// setEnd sets the text behind the last operator, or before the first one.
func (f *textFormat) setEnd(literal string) {
	if n := len(f.ops); n > 0 {
		f.ops[n-1].end = []byte(literal)
	} else {
		f.first = []byte(literal)
	}
}

func (f *textFormat) add(literal string, op textOp) error {
	if n := len(f.ops); n > 0 && literal == "" {
		return fmt.Errorf("the log format has nothing between %s and %s, so their values cannot be distinguished", f.ops[n-1].written, op.written)
	}
	if len(f.ops) == maxOperatorsOfText {
		return fmt.Errorf("the log format has more than %d operators", maxOperatorsOfText)
	}
	f.setEnd(literal)
	f.ops = append(f.ops, op)
	return nil
}

// nextOperator splits off the first operator of a format of Envoy. The operator has no attribute if
// there is none.
func nextOperator(text string) (before string, op textOp, rest string, err error) {
	before, operator, rest, ok := CutOperator(text)
	switch {
	case !ok:
		return "", op, "", fmt.Errorf("the log format has a %% that begins no operator, behind %q; write %%%% for a percent sign", before)
	case operator == "":
		return before, op, "", nil
	}
	op.written = "%" + operator + "%"
	if op.attribute, err = Parse(operator); err != nil {
		return "", op, "", fmt.Errorf("the log format: %w", err)
	}
	t, kind, err := timeOf(op.attribute)
	if kind != "" {
		op.time = &t
	}
	return before, op, rest, err
}

// variables are the variables of nginx that are known as operators of Envoy.
var variables = map[string]Attribute{
	"remote_addr":        Client,
	"realip_remote_addr": Peer,
	"request":            RequestLine,
	"request_method":     Method,
	"request_uri":        Path,
	"server_protocol":    Protocol,
	"host":               Authority,
	"http_host":          Authority,
	"status":             Status,
	"request_time":       Seconds,
	"time_local":         EmitTime,
	"time_iso8601":       EmitTime,
	"msec":               EmitTime,
}

// nextVariable splits off the first variable of a log_format of nginx.
func nextVariable(text string) (before string, op textOp, rest string, err error) {
	before, rest, found := strings.Cut(text, "$")
	if !found {
		return text, op, "", nil
	}
	isName := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' }
	var name, behind string
	if strings.HasPrefix(rest, "{") {
		if name, behind, found = strings.Cut(rest[1:], "}"); !found {
			return "", op, "", fmt.Errorf("the log format has ${ without }")
		}
	} else {
		n := 0
		for n < len(rest) && isName(rest[n]) {
			n++
		}
		name, behind = rest[:n], rest[n:]
	}
	if name == "" {
		return "", op, "", fmt.Errorf("the log format has a $ that begins no variable, behind %q", before)
	}
	op.written, op.attribute = "$"+name, Attribute("$"+name)
	if a, ok := variables[name]; ok {
		op.attribute = a
	} else if header, ok := strings.CutPrefix(name, "http_"); ok {
		op.attribute = Header(strings.ReplaceAll(header, "_", "-"))
	}
	switch name {
	case "time_local":
		op.time = &timeSlot{layout: commonTime}
	case "time_iso8601":
		op.time = &timeSlot{usual: true}
	}
	return before, op, behind, nil
}
