// Package words writes numbers and times for people, in the same way on every page and in every
// message: counts with commas, durations, percentages, bytes and shares.
package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count returns a number with a comma between groups of three digits: 9,500.
func Count(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Counted returns a number with its noun: 1 request, 9,500 requests.
func Counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Coordinate returns a number of a picture, with at most two decimals.
func Coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// Short returns a number in at most five characters: 950, 12.3k, 4.5M. Infinite and missing numbers
// are a dash.
func Short(n float64) string {
	switch a := math.Abs(n); {
	case math.IsNaN(n) || math.IsInf(n, 0):
		return "–"
	case a == 0:
		return "0"
	case a < 0.01:
		return "<0.01"
	case a < 10:
		return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(n, 'f', 2, 64), "0"), ".")
	case a < 999.5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G", "T", "P", "E"} {
		if n /= 1000; math.Abs(n) < 999.5 {
			digits := 1
			if math.Abs(n) >= 99.95 {
				digits = 0
			}
			return strings.TrimSuffix(strconv.FormatFloat(n, 'f', digits, 64), ".0") + unit
		}
	}
	return ">999E"
}

// Duration returns a time in its two largest units, rounded up: 320ms, 9.5s, 3m20s, 2h5m, 1d3h. A
// time that is not above zero is 0s.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	step := time.Hour
	for _, s := range []struct{ below, step time.Duration }{
		{time.Millisecond, time.Microsecond},
		{10 * time.Millisecond, 100 * time.Microsecond},
		{time.Second, time.Millisecond},
		{10 * time.Second, 100 * time.Millisecond},
		{time.Hour, time.Second},
		{day, time.Minute},
	} {
		if d < s.below {
			step = s.step
			break
		}
	}
	d = (max(d, 0) + step - 1).Truncate(step)
	if d < time.Minute {
		return d.String()
	}
	text := ""
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / u.length; n > 0 {
			text += fmt.Sprintf("%d%s", n, u.name)
			d %= u.length
		}
	}
	return text
}

// Seconds returns a number of seconds as [Duration]. An infinite, missing or negative one is a dash.
func Seconds(s float64) string {
	if math.IsNaN(s) || s < 0 || s > math.MaxInt64/1e10 {
		return "–"
	}
	return Duration(time.Duration(math.Round(s*1e6)) * time.Microsecond)
}

// Percent returns a fraction with two digits that count: 0.25 is 25 %. A fraction below 1 is never 100 %,
// and one above 0 never 0 %.
func Percent(fraction float64) string {
	p := 100 * fraction
	switch {
	case math.IsNaN(p) || p <= 0:
		return "0 %"
	case p < 0.001:
		return "<0.001 %"
	case p < 10:
		digits := 1 - int(math.Floor(math.Log10(p)))
		text := strconv.FormatFloat(p, 'f', digits, 64)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
	case p > 99.9 && p < 100:
		return ">99.9 %"
	}
	return strings.TrimSuffix(strconv.FormatFloat(min(p, 1e6), 'f', 1, 64), ".0") + " %"
}

// Bytes returns a number of bytes: 950 B, 12.3 kB.
func Bytes(n int64) string {
	if text := Short(float64(n)); strings.ContainsAny(text, "kMGTPE") {
		return text[:len(text)-1] + " " + text[len(text)-1:] + "B"
	}
	return strconv.FormatInt(n, 10) + " B"
}

// PercentOf returns how much a part is of a whole, as [Percent]. Of nothing it is 0 %.
func PercentOf(part, of float64) string { return Percent(part / of) }
