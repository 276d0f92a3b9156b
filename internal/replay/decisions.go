package replay

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// Decisions writes one line of JSON for each request, in the order in which they are decided.
// docs/replay-decisions.schema.json describes a line. Call Flush at the end.
type Decisions struct {
	files []string
	out   *bufio.Writer
	line  []byte
	err   error
	// names are whom logs belong to, by their hashes: to find that out takes longer than to decide.
	names map[uint64]string
}

// maxNames bounds the names that are remembered.
const maxNames = 1 << 16

// NewDecisions returns a Decisions that writes to w. files are the names of the logs.
func NewDecisions(w io.Writer, files []string) *Decisions {
	return &Decisions{files: files, out: bufio.NewWriterSize(w, 64<<10), names: make(map[uint64]string)}
}

// Flush writes what is still in memory, and returns the first error of a write.
func (d *Decisions) Flush() error {
	if err := d.out.Flush(); d.err == nil {
		d.err = err
	}
	return d.err
}

// add writes a line. It returns the first error of a write.
func (d *Decisions) add(r *accesslog.Record, got, was *outcome, compared bool) error {
	b := append(d.line[:0], `{"file":`...)
	file := ""
	if r.File < len(d.files) {
		file = d.files[r.File]
	}
	b = appendText(b, file)
	b = append(b, `,"line":`...)
	b = strconv.AppendInt(b, r.Line, 10)
	b = append(b, `,"time":"`...)
	b = time.Unix(0, int64(r.At)).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z07:00")
	b = append(b, `","allowed":`...)
	b = strconv.AppendBool(b, got.allowed)
	if l := got.limit; l != nil {
		b = appendText(append(b, `,"rule":`...), l.Rule.Name)
		if l.Tier != "" {
			b = appendText(append(b, `,"tier":`...), l.Tier)
		}
		b = appendText(append(b, `,"subject":`...), d.whose(got))
		b = strconv.AppendUint(append(b, `,"remaining":`...), l.Decision.Remaining, 10)
		if !got.allowed && !l.Decision.Never {
			b = append(b, `,"retry_after":`...)
			b = strconv.AppendFloat(b, l.Wait().Seconds(), 'f', -1, 64)
		}
	}
	if compared {
		b = append(b, `,"against":{"allowed":`...)
		b = strconv.AppendBool(b, was.allowed)
		if was.limit != nil {
			b = appendText(append(b, `,"rule":`...), was.limit.Rule.Name)
		}
		b = append(b, '}')
	}
	d.line = append(b, "}\n"...)
	if _, err := d.out.Write(d.line); err != nil && d.err == nil {
		d.err = err
	}
	return d.err
}

// whose returns whom the limit of an outcome counts.
func (d *Decisions) whose(o *outcome) string {
	name, known := d.names[o.meeting.caller]
	if !known {
		if len(d.names) >= maxNames {
			clear(d.names)
		}
		name = whose(o.limit, o.req)
		d.names[o.meeting.caller] = name
	}
	return name
}

// appendText appends a text as JSON.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a text is never refused
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
