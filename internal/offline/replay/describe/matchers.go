package describe

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// matcher is a compiled matcher of a header or of a query parameter.
type matcher struct {
	envoyfile.Matcher
	value lookup
	regex *regexp.Regexp
	lower []byte // Text in lower case, if the case does not matter
}

// matchers compiles matchers of headers, or of the query parameters of a path. The headers that
// Envoy changes after the call are in changed.
func (d *Describer) matchers(list []envoyfile.Matcher, headers bool, path accesslog.Attribute, changed []string) []matcher {
	out := make([]matcher, len(list))
	for i, in := range list {
		m := matcher{Matcher: in}
		a := path
		if headers && in.Name != ":path" {
			a = accesslog.Header(in.Name)
		}
		m.value = d.header(a, in.Location, "Where a match looks at it, it counts as absent.", changed, false)
		if in.Test == envoyfile.IsRegex {
			m.regex = full(in.Text)
		}
		if in.Fold {
			m.lower = []byte(strings.ToLower(in.Text))
		}
		out[i] = m
	}
	return out
}

// matchesRecord reports whether a record has the header.
func (m *matcher) matchesRecord(d *Describer, r *accesslog.Record) bool {
	v := m.value.of(d, r)
	return m.matches(v.Text, v.State == accesslog.Present)
}

func (m *matcher) matches(value []byte, present bool) bool {
	switch {
	case m.Test == envoyfile.IsPresent:
		return (present == m.Present) != m.Invert
	case !present && !m.Empty:
		return false
	}
	return m.test(value) != m.Invert
}

// matchesQuery reports whether a matcher of a query parameter holds.
func (m *matcher) matchesQuery(d *Describer, r *accesslog.Record, decode bool) bool {
	v := m.value.of(d, r)
	value, present := d.parameter(v.Text, m.Name, decode)
	if m.Test == envoyfile.IsPresent {
		return present == m.Present
	}
	return present && m.test(value)
}

func (m *matcher) test(value []byte) bool {
	switch m.Test {
	case envoyfile.IsRegex:
		return m.regex.Match(value)
	case envoyfile.InRange:
		n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		return err == nil && m.Start <= n && n < m.End
	}
	if m.Test == envoyfile.IsOneOf {
		return slices.ContainsFunc(m.Texts, func(one string) bool {
			return one == string(value) || m.Fold && strings.EqualFold(one, string(value))
		})
	}
	text := []byte(m.Text)
	if m.Fold {
		value, text = bytes.ToLower(value), m.lower
	}
	switch m.Test {
	case envoyfile.IsExact:
		return bytes.Equal(value, text)
	case envoyfile.HasPrefix:
		return bytes.HasPrefix(value, text)
	case envoyfile.HasSuffix:
		return bytes.HasSuffix(value, text)
	default:
		return bytes.Contains(value, text)
	}
}

// parameter returns the first value of a query parameter of a path.
func (d *Describer) parameter(path []byte, name string, decode bool) (value []byte, present bool) {
	_, query, ok := bytes.Cut(path, []byte("?"))
	if !ok {
		return nil, false
	}
	if i := bytes.IndexByte(query, '#'); i >= 0 {
		query = query[:i]
	}
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte("&"))
		key, value, _ := bytes.Cut(pair, []byte("="))
		if decode {
			key = d.decoded(key)
		}
		if string(key) != name {
			continue
		}
		if decode {
			value = d.decoded(value)
		}
		return value, true
	}
	return nil, false
}

// decoded replaces percent escapes. Its result is valid until the next call.
func (d *Describer) decoded(b []byte) []byte {
	if bytes.IndexByte(b, '%') < 0 {
		return b
	}
	d.buffer = d.buffer[:0]
	for i := 0; i < len(b); i++ {
		if b[i] == '%' && i+2 < len(b) {
			if n, err := strconv.ParseUint(string(b[i+1:i+3]), 16, 8); err == nil {
				d.buffer = append(d.buffer, byte(n))
				i += 2
				continue
			}
		}
		d.buffer = append(d.buffer, b[i])
	}
	return d.buffer
}
