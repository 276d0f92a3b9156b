// Package words writes numbers for people, in the same way on every page and in every message.
package words

import (
	"math"
	"strconv"
	"strings"
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
