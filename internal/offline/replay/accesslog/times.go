package accesslog

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Times before 1970 or after 2100 are no times of requests: they come from broken lines and clocks.
var latest = time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// inRange returns seconds and nanos as nanoseconds, false if no request can have come then.
func inRange(seconds, nanos int64) (int64, bool) {
	if seconds < 0 || seconds >= latest/int64(time.Second) {
		return 0, false
	}
	return seconds*int64(time.Second) + nanos, true
}

// fraction reads digits behind a decimal point as nanoseconds, and returns how many bytes there
// were. Digits below a nanosecond are dropped.
func fraction(b []byte) (nanos int64, n int) {
	scale := int64(100_000_000)
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		nanos += int64(b[n]-'0') * scale
		scale /= 10
		n++
	}
	return nanos, n
}

// commonTime is how nginx, Apache and Caddy write times in their text formats.
const commonTime = "02/Jan/2006:15:04:05 -0700"

// maxTime is how long a time is at most, in bytes.
const maxTime = 64

// usualTimes are the forms of times that are read without a format.
var usualTimes = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z0700", commonTime}

// parseTime reads a text as a time in one of the usual forms: RFC 3339, the time of common logs,
// and seconds, milliseconds, microseconds or nanoseconds since 1970, distinguished by their size.
func parseTime(b []byte) (int64, bool) {
	if len(b) > maxTime {
		return 0, false
	}
	if at, ok := sinceEpoch(b); ok {
		return at, true
	}
	b = bytes.Trim(b, "[]")
	for _, layout := range usualTimes {
		if at, ok := parseLayout(layout, b); ok {
			return at, true
		}
	}
	return 0, false
}

// parseLayout reads a text by a layout of package time. An empty layout is seconds since 1970.
func parseLayout(layout string, b []byte) (int64, bool) {
	if layout == "" {
		return sinceEpoch(b)
	}
	t, err := time.Parse(layout, string(b))
	if err != nil {
		return 0, false
	}
	return inRange(t.Unix(), int64(t.Nanosecond()))
}

// sinceEpoch reads a number of seconds, or of parts of a second, since 1970.
func sinceEpoch(b []byte) (int64, bool) {
	var whole, nanos int64
	i := skipDigits(b, 0)
	if i == 0 || i > 19 {
		return 0, false
	}
	for _, c := range b[:i] {
		whole = whole*10 + int64(c-'0')
	}
	if i+1 < len(b) && b[i] == '.' {
		part, width := fraction(b[i+1:])
		nanos, i = part, i+1+width
	}
	if i != len(b) {
		return 0, false
	}
	// In seconds the year 2100 has ten digits. Each thousand times as much is the next finer unit.
	switch {
	case whole < 1e11:
		return inRange(whole, nanos)
	case whole < 1e14:
		return inRange(whole/1e3, whole%1e3*1e6+nanos/1e3)
	case whole < 1e17:
		return inRange(whole/1e6, whole%1e6*1e3+nanos/1e6)
	default:
		return inRange(whole/1e9, whole%1e9)
	}
}

// conversions are those of START_TIME's formats, which are strftime's, and what they are in layouts of
// package time.
var conversions = []string{
	"%T", "15:04:05", "%F", "2006-01-02", "%D", "01/02/06", "%R", "15:04",
	"%Y", "2006", "%y", "06", "%m", "01", "%d", "02", "%e", "_2", "%j", "002", "%H", "15", "%I", "03", "%p", "PM", "%M", "04", "%S", "05",
	"%b", "Jan", "%h", "Jan", "%B", "January", "%a", "Mon", "%A", "Monday", "%z", "-0700", "%Z", "UTC",
	"%E0S", "05", "%E3S", "05.000", "%E6S", "05.000000", "%E9S", "05.000000000",
	".%3f", ".000", ".%6f", ".000000", ".%9f", ".000000000", ".%f", ".000000000",
}

var (
	toLayout = strings.NewReplacer(conversions...)
	epoch    = regexp.MustCompile(`^%s(\.?%[1-9]?f)?$`)
)

// layoutOf returns the layout for [parseLayout] of a format of START_TIME.
func layoutOf(format string) (string, error) {
	if epoch.MatchString(format) {
		return "", nil
	}
	layout := toLayout.Replace(format)
	if at := strings.IndexByte(layout, '%'); at >= 0 {
		return "", fmt.Errorf("the time format %q has %s, which cannot be read; use %%Y-%%m-%%dT%%H:%%M:%%S.%%3fZ or %%s.%%3f", format, layout[at:min(at+3, len(layout))])
	}
	some := time.Date(2026, 11, 23, 21, 0, 0, 0, time.UTC)
	if again, err := time.Parse(layout, some.Format(layout)); err != nil || !again.Equal(some) {
		return "", fmt.Errorf("the time format %q does not say the instant of a request; it needs a date and an hour, or %%s", format)
	}
	if strings.TrimRight(strings.TrimSuffix(layout, "Z"), ".0") == "2006-01-02T15:04:05" {
		layout = time.RFC3339 // package time reads it faster
	}
	return layout, nil
}
