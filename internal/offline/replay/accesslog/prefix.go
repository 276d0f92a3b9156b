package accesslog

import (
	"bytes"
	"net/netip"
	"regexp"
	"slices"
)

// A prefix strips from lines what another program has put before or around them: a container
// runtime, syslog or a log shipper. All lines of a file have the same prefix. It is not safe for concurrent use.
type prefix struct {
	steps []int // of the table, the outermost first
	json  *jsonParser
	out   fields
}

// steps are the known prefixes. Each returns a line without it, or false if the line does not have
// it.
var steps = []func(p *prefix, line []byte) ([]byte, bool){
	(*prefix).field,
	without(stamp + ` std(?:out|err) [FP](?::[^ ]*)? `), // containerd and CRI-O
	// Syslog, as RFC 5424 has it, and as RFC 3164 has it, with its priority or without, as rsyslog and
	// journalctl write it too.
	without(`<\d{1,3}>1 (?:[^ ]+ ){5}(?:-|(?:\[(?:[^\\\]]|\\.)*\])+) *\x{feff}?`),
	without(`(?:<\d{1,3}>)?(?:` + stamp + `|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:[^ ]+ )?[^ :]+:(?: +|$)`),
	without(stamp + ` `),               // kubectl logs --timestamps, docker logs --timestamps
	without(`\[pod/[^\]]*\] `),         // kubectl logs --prefix
	without(`[^ ]+ +\| (?:\x1b\[0m)?`), // docker compose logs; the end of the name's colour
}

// stamp is a time such as 2026-11-23T09:30:29.123Z, with a zone or without.
const stamp = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.,:+Z-]*`

// maxPrefix is how long a prefix is at most, in bytes.
const maxPrefix = 4 << 10

// without returns a step that strips what a regular expression matches.
func without(expression string) func(*prefix, []byte) ([]byte, bool) {
	re := regexp.MustCompile(`^(?:` + expression + `)`)
	return func(_ *prefix, line []byte) ([]byte, bool) {
		found := re.FindIndex(line[:min(len(line), maxPrefix)])
		if found == nil {
			return nil, false
		}
		return line[found[1]:], true
	}
}

// wrappers are the names of fields that have a line: of Docker and Fluent Bit, of Vector and Elastic,
// of journald, of Google Cloud, and of Loki.
var wrappers = []string{"log", "message", "MESSAGE", "textPayload", "line"}

const (
	maxSteps  = 4
	maxChains = 16 // prefixes that are tried
	noPrefix  = "lacks what the first lines have before the request"
)

func newPrefix(chain []int) *prefix {
	return &prefix{steps: chain, json: newJSONParser(wrappers), out: fields{values: make([]Value, len(wrappers))}}
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

// strip returns a line without its prefix, false for a line without the prefix. The line is valid until
// the next call.
func (p *prefix) strip(line []byte) (rest []byte, ok bool) {
	for _, i := range p.steps {
		if line, ok = steps[i](p, line); !ok {
			return nil, false
		}
	}
	return line, true
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
	at := slices.IndexFunc(p.out.values, func(v Value) bool { return v.State == Present })
	if at < 0 {
		return nil, false
	}
	return trimLine(p.out.values[at].Text), true
}

// isAddress reports whether a text is an IP address.
func isAddress(b []byte) bool {
	_, err := netip.ParseAddr(string(b))
	return err == nil
}
