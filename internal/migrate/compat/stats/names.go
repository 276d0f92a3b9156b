package stats

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

const (
	// maxName bounds a FullKey with values of requests, in bytes. A longer one counts as
	// other.
	maxName = 512
	// maxValue bounds the name of an unknown domain, in bytes.
	maxValue = 256
	// other is the value of all values without a name of their own.
	other = "other"
)

// layout is how the FullKey of a rule is made.
type layout struct {
	domain string
	levels []level
	// entries is not nil for limits that come with a descriptor. The FullKey then has all
	// entries of the descriptor. It reports whether the values of a key must not be shown.
	entries func(key string) bool
}

type level struct {
	key, value string
	// shown means that the value of the request replaces value.
	shown bool
	// ends means that an underscore follows the key even if there is no value.
	ends bool
}

func ruleLayout(r *rules.Rule) layout {
	l := layout{domain: r.Domain}
	shared := false
	for i := range r.Path {
		shared = shared || r.HasOneLog(i)
	}
	for i, n := range r.Path {
		v := level{key: n.Key}
		switch {
		case r.Hides(i):
		case r.HasOneLog(i):
			v.value = n.Value
		case r.Metric.Detailed:
			v.shown, v.ends = true, !shared
		case n.Open() && r.ShowsValue(i):
			v.shown = true
		case !n.AnyValue:
			v.value = n.Value
		}
		l.levels = append(l.levels, v)
	}
	return l
}

// open reports whether the FullKey has values of requests.
func (l *layout) open() bool {
	for _, v := range l.levels {
		if v.shown {
			return true
		}
	}
	return l.entries != nil
}

// id is the same for layouts that make the same names.
func (l *layout) id() string { return fmt.Sprintf("%q %t %#v", l.domain, l.entries != nil, l.levels) }

// fullKey returns the FullKey without values of requests: other replaces them.
func (l *layout) fullKey() string {
	var b strings.Builder
	b.WriteString(l.domain)
	if l.entries != nil {
		b.WriteString("." + other)
	}
	for _, v := range l.levels {
		b.WriteString("." + v.key)
		switch {
		case v.shown:
			b.WriteString("_" + other)
		case v.value != "":
			b.WriteString("_" + v.value)
		}
	}
	return b.String()
}

// appendKey appends the FullKey with the values of a request. It reports false if that has more
// than maxName bytes.
func (l *layout) appendKey(b []byte, entries descriptors.Descriptor) (key []byte, ok bool) {
	b, ok = append(b, l.domain...), len(l.domain) <= maxName
	if l.entries != nil {
		for i := 0; ok && i < len(entries); i++ {
			e := &entries[i]
			value := e.Value
			if l.entries(e.Key) {
				value = ""
			}
			b, ok = appendLevel(b, e.Key, value, false)
		}
		return b, ok
	}
	for i := 0; ok && i < len(l.levels); i++ {
		v := &l.levels[i]
		value := v.value
		if v.shown && i < len(entries) {
			value = entries[i].Value
		}
		b, ok = appendLevel(b, v.key, value, v.ends)
	}
	return b, ok
}

// appendLevel appends .key or .key_value. It reports false if b gets too long.
func appendLevel(b []byte, key, value string, ends bool) (longer []byte, ok bool) {
	if len(b)+len(".")+len(key)+len("_")+len(value) > maxName {
		return b, false
	}
	b = append(b, '.')
	b = append(b, key...)
	if value != "" || ends {
		b = append(b, '_')
		b = append(b, value...)
	}
	return b, true
}

var (
	separators = strings.NewReplacer(":", "_", "|", "_")
	ipv4       = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
)

// clean makes a text the part of a name as envoyproxy/ratelimit does: colons, bars and the dots
// of IPv4 addresses become underscores. So do bytes that are not UTF-8 and control characters,
// since a new line would begin another metric.
func clean(text string) string {
	text = separators.Replace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, text))
	return ipv4.ReplaceAllStringFunc(text, func(address string) string { return strings.ReplaceAll(address, ".", "_") })
}
