package accesslog

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Times before 1970 or after 2100 are no times of requests: they come from broken lines and clocks.
var (
	earliest int64
	latest   = time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

// A moment collects the parts of a written time.
type moment struct {
	year, month, day     int
	hour, minute, second int
	nanos                int64
	offset               int64 // of the zone, in seconds east
	epoch                int64 // seconds since 1970, instead of a date
	isEpoch              bool
	is12Hour, isPM       bool
}

// nanoseconds returns the time since 1970 in nanoseconds.
func (m *moment) nanoseconds() (int64, bool) {
	seconds := m.epoch
	if !m.isEpoch {
		if m.is12Hour {
			if m.hour < 1 || m.hour > 12 {
				return 0, false
			}
			m.hour %= 12
			if m.isPM {
				m.hour += 12
			}
		}
		date := time.Date(m.year, time.Month(m.month), m.day, 0, 0, 0, 0, time.UTC)
		if _, month, day := date.Date(); int(month) != m.month || day != m.day || m.hour > 23 || m.minute > 59 || m.second > 60 {
			return 0, false // there is no such date or time
		}
		seconds = date.Unix() + int64(m.hour*3600+m.minute*60+m.second) - m.offset
	}
	return inRange(seconds, m.nanos)
}

// inRange returns seconds and nanos as nanoseconds, false if no request can have come then.
func inRange(seconds, nanos int64) (int64, bool) {
	if seconds < 0 || seconds > math.MaxInt64/int64(time.Second)-1 {
		return 0, false
	}
	at := seconds*int64(time.Second) + nanos
	return at, at >= earliest && at < latest
}

// digits reads exactly n digits at the start of b.
func digits(b []byte, n int) (int, bool) {
	if len(b) < n {
		return 0, false
	}
	v := 0
	for _, c := range b[:n] {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, true
}

// pair reads two digits at the start of b. If one of the bytes is not a digit, pair returns a number
// so far below zero that the sum with 100 times another pair is below zero too.
func pair(b []byte) int {
	tens, ones := b[0]-'0', b[1]-'0'
	if tens > 9 || ones > 9 {
		return -10_000
	}
	return 10*int(tens) + int(ones)
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

// zone reads Z, +hh:mm or +hhmm, and returns how many bytes that were; zero if there is no zone.
func zone(b []byte) (offset int64, n int) {
	if len(b) > 0 && (b[0] == 'Z' || b[0] == 'z') {
		return 0, 1
	}
	if len(b) < 5 || (b[0] != '+' && b[0] != '-') {
		return 0, 0
	}
	hours, ok := digits(b[1:], 2)
	at := 3
	if b[3] == ':' {
		at = 4
	}
	minutes, ok2 := digits(b[at:], 2)
	if !ok || !ok2 || hours > 23 || minutes > 59 {
		return 0, 0
	}
	offset = int64(hours*3600 + minutes*60)
	if b[0] == '-' {
		offset = -offset
	}
	return offset, at + 2
}

// parseTime reads a whole text as a time in any of the usual forms: RFC 3339, the time of common
// logs, and seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their
// size.
func parseTime(b []byte) (int64, bool) {
	if len(b) > 64 {
		return 0, false
	}
	at, n, ok := rfc3339(b)
	if ok {
		return at, n == len(b)
	}
	if at, ok := sinceEpoch(b); ok {
		return at, true
	}
	if len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1]
	}
	at, n, ok = commonTime.read(b)
	return at, ok && n == len(b)
}

// rfc3339 reads a time such as 2026-11-23T09:30:29.123Z at the start of b.
func rfc3339(b []byte) (at int64, n int, ok bool) {
	const date = len("2006-01-02T15:04:05")
	if len(b) < date+1 || b[4] != '-' || b[7] != '-' || b[13] != ':' || b[16] != ':' {
		return 0, 0, false
	}
	if b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, 0, false
	}
	m := moment{
		year: 100*pair(b) + pair(b[2:]), month: pair(b[5:]), day: pair(b[8:]),
		hour: pair(b[11:]), minute: pair(b[14:]), second: pair(b[17:]),
	}
	if m.year|m.month|m.day|m.hour|m.minute|m.second < 0 {
		return 0, 0, false
	}
	n = date
	if b[n] == '.' || b[n] == ',' {
		nanos, width := fraction(b[n+1:])
		if width == 0 {
			return 0, 0, false
		}
		m.nanos = nanos
		n += 1 + width
	}
	offset, width := zone(b[n:])
	if width == 0 {
		return 0, 0, false
	}
	m.offset = offset
	at, ok = m.nanoseconds()
	return at, n + width, ok
}

// sinceEpoch reads a number of seconds, or of parts of a second, since 1970.
func sinceEpoch(b []byte) (int64, bool) {
	var whole int64
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if i > 18 {
			return 0, false
		}
		whole = whole*10 + int64(b[i]-'0')
	}
	if i == 0 {
		return 0, false
	}
	var nanos int64
	if i < len(b) && b[i] == '.' {
		n, width := fraction(b[i+1:])
		nanos = n
		if width > 0 {
			i += 1 + width
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		// Numbers of JSON may have exponents, such as 1.7e9; their digits are a matter of the writer.
		return exponential(b)
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

// A timeLayout is a compiled format of START_TIME, in the words of strftime.
type timeLayout struct {
	steps []timeStep
}

// A timeStep is one conversion, or text that must be there.
type timeStep struct {
	conversion byte // 0: text
	width      int  // of %Nf
	text       string
}

// commonTime is how nginx, Apache and Caddy write times in their text formats.
var commonTime = mustLayout("%d/%b/%Y:%H:%M:%S %z")

func mustLayout(format string) *timeLayout {
	l, err := newTimeLayout(format)
	if err != nil {
		panic(err)
	}
	return l
}

// newTimeLayout compiles a format.
func newTimeLayout(format string) (*timeLayout, error) {
	l := new(timeLayout)
	for short, long := range map[string]string{"%T": "%H:%M:%S", "%F": "%Y-%m-%d", "%D": "%m/%d/%y", "%R": "%H:%M"} {
		format = strings.ReplaceAll(format, short, long)
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			l.addText(format[i : i+1])
			continue
		}
		i++
		if i == len(format) {
			return nil, fmt.Errorf("the time format %q ends with a %%", format)
		}
		switch c := format[i]; {
		case c == '%' || c == 'n' || c == 't':
			l.addText(map[byte]string{'%': "%", 'n': "\n", 't': "\t"}[c])
		case c >= '1' && c <= '9' && i+1 < len(format) && format[i+1] == 'f':
			l.steps = append(l.steps, timeStep{conversion: 'f', width: int(c - '0')})
			i++
		case c == 'E' && i+2 < len(format) && format[i+2] == 'S' && format[i+1] >= '0' && format[i+1] <= '9':
			l.steps = append(l.steps, timeStep{conversion: 'S'})
			if width := int(format[i+1] - '0'); width > 0 {
				l.addText(".")
				l.steps = append(l.steps, timeStep{conversion: 'f', width: width})
			}
			i += 2
		case c == 'f':
			l.steps = append(l.steps, timeStep{conversion: 'f', width: 9})
		case strings.IndexByte("YymdeHIMSszZbhBaApj", c) >= 0:
			l.steps = append(l.steps, timeStep{conversion: c})
		default:
			return nil, fmt.Errorf("the time format %q has %%%c, which cannot be read; use %%Y-%%m-%%dT%%H:%%M:%%S.%%3fZ or %%s.%%3f", format, c)
		}
	}
	return l, l.complete(format)
}

func (l *timeLayout) addText(text string) {
	if n := len(l.steps); n > 0 && l.steps[n-1].conversion == 0 {
		l.steps[n-1].text += text
		return
	}
	l.steps = append(l.steps, timeStep{text: text})
}

// complete returns an error if times of the format are no instants.
func (l *timeLayout) complete(format string) error {
	has := make(map[byte]bool)
	for _, s := range l.steps {
		has[s.conversion] = true
	}
	switch {
	case has['s']:
	case (has['Y'] || has['y']) && (has['j'] || (has['m'] || has['b'] || has['h'] || has['B']) && (has['d'] || has['e'])) && (has['H'] || has['I'] && has['p']):
	default:
		return fmt.Errorf("the time format %q does not tell the instant of a request; it needs a date and an hour, or %%s", format)
	}
	return nil
}

// read reads a time at the start of b, and returns how many bytes that were.
func (l *timeLayout) read(b []byte) (at int64, n int, ok bool) {
	m := moment{month: 1, day: 1}
	ofYear := 0
	rest := b
	for _, s := range l.steps {
		if s.conversion == 0 {
			if len(rest) < len(s.text) || string(rest[:len(s.text)]) != s.text {
				return 0, 0, false
			}
			rest = rest[len(s.text):]
			continue
		}
		width := m.take(s, rest, &ofYear)
		if width <= 0 {
			return 0, 0, false
		}
		rest = rest[width:]
	}
	if ofYear > 0 {
		m.month, m.day = 1, 1
	}
	at, ok = m.nanoseconds()
	if ok && ofYear > 0 {
		at += int64(ofYear-1) * 86400 * int64(time.Second)
		ok = at < latest
	}
	return at, len(b) - len(rest), ok
}

const (
	monthNames = "janfebmaraprmayjunjulaugsepoctnovdec"
)

var (
	longMonths = []string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}
	longDays   = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)

// take reads one conversion, and returns how many bytes it has, 0 if it is not there.
func (m *moment) take(s timeStep, b []byte, ofYear *int) int {
	number := func(into *int, width int) int {
		v, ok := digits(b, width)
		if !ok {
			return 0
		}
		*into = v
		return width
	}
	switch s.conversion {
	case 'Y':
		return number(&m.year, 4)
	case 'y':
		n := number(&m.year, 2)
		m.year += 2000
		return n
	case 'm':
		return number(&m.month, 2)
	case 'd':
		return number(&m.day, 2)
	case 'e':
		if len(b) > 1 && b[0] == ' ' {
			b = b[1:]
			return 2 * number(&m.day, 1)
		}
		return number(&m.day, 2)
	case 'j':
		n := number(ofYear, 3)
		if *ofYear < 1 || *ofYear > 366 {
			return 0
		}
		return n
	case 'H':
		return number(&m.hour, 2)
	case 'I':
		m.is12Hour = true
		return number(&m.hour, 2)
	case 'M':
		return number(&m.minute, 2)
	case 'S':
		return number(&m.second, 2)
	case 'f':
		if _, ok := digits(b, s.width); !ok {
			return 0
		}
		m.nanos, _ = fraction(b[:s.width])
		return s.width
	}
	return m.takeWord(s, b)
}

// takeWord reads a conversion whose width the text tells.
func (m *moment) takeWord(s timeStep, b []byte) int {
	switch s.conversion {
	case 's':
		n := 0
		// The seconds have at most ten digits until the year 2286. Parts of a second can follow at once.
		for n < len(b) && n < 10 && b[n] >= '0' && b[n] <= '9' {
			m.epoch = m.epoch*10 + int64(b[n]-'0')
			n++
		}
		m.isEpoch = true
		return n
	case 'z', 'Z':
		if bytes.HasPrefix(b, []byte("UTC")) || bytes.HasPrefix(b, []byte("GMT")) {
			return 3
		}
		offset, n := zone(b)
		m.offset = offset
		return n
	case 'b', 'h':
		if len(b) < 3 {
			return 0
		}
		word := [3]byte{b[0] | 0x20, b[1] | 0x20, b[2] | 0x20}
		for i := 0; i < len(monthNames); i += 3 {
			if monthNames[i] == word[0] && monthNames[i+1] == word[1] && monthNames[i+2] == word[2] {
				m.month = i/3 + 1
				return 3
			}
		}
		return 0
	case 'B':
		i, n := wordOf(b, longMonths)
		m.month = i + 1
		return n
	case 'a':
		return min(len(b), 3)
	case 'A':
		_, n := wordOf(b, longDays)
		return n
	case 'p':
		if len(b) < 2 || b[1]|0x20 != 'm' || (b[0]|0x20 != 'a' && b[0]|0x20 != 'p') {
			return 0
		}
		m.isPM = b[0]|0x20 == 'p'
		return 2
	}
	return 0
}

// wordOf returns which word b begins with, and its length, 0 if it is not one of them.
func wordOf(b []byte, words []string) (int, int) {
	for i, w := range words {
		if len(b) >= len(w) && strings.EqualFold(string(b[:len(w)]), w) {
			return i, len(w)
		}
	}
	return 0, 0
}

// exponential reads a number with an exponent as seconds since 1970, or as parts of a second.
func exponential(b []byte) (int64, bool) {
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(v >= 0) {
		return 0, false
	}
	for v >= 1e11 && v < 1e20 {
		v /= 1e3
	}
	if v >= 1e11 {
		return 0, false
	}
	whole, part := math.Modf(v)
	return inRange(int64(whole), int64(part*1e9))
}
