package strict

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// The units of [ParseDuration] that package time does not have.
const (
	Day  = 24 * time.Hour
	Week = 7 * Day
)

// ParseDuration reads a time as settings and rules write it: a Go duration
// string ([time.ParseDuration]), in which d is a day of 24 hours and w a week of
// 7 days. "1d12h", "1.5d" and "36h" are the same. A number without a unit is an
// error, but for 0. Errors quote s.
func ParseDuration(s string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(s, "+")
	}
	switch rest {
	case "0":
		return 0, nil
	case "":
		return 0, fmt.Errorf("%s is %w", Quote(s), ErrNoTime)
	}
	var total time.Duration
	for rest != "" {
		number := rest[:span(rest, isNumeric)]
		rest = rest[len(number):]
		unit := rest[:span(rest, func(c byte) bool { return !isNumeric(c) })]
		rest = rest[len(unit):]
		part, err := parsePart(number, unit)
		switch {
		case errors.Is(err, errNoUnit):
			if _, err := ParseDuration(s + "s"); err != nil {
				return 0, err
			}
			return 0, fmt.Errorf("%s has no unit: write %ss or %sms", Quote(s), Quoteless(s), Quoteless(s))
		case errors.Is(err, errTooLong), err == nil && part > math.MaxInt64-total:
			return 0, fmt.Errorf("%s is too long for a time", Quote(s))
		case err != nil:
			return 0, fmt.Errorf("%s is %w", Quote(s), ErrNoTime)
		}
		total += part
	}
	if negative {
		total = -total
	}
	return total, nil
}

var (
	// ErrNoTime replaces the errors of ParseDuration if a message must not repeat the text.
	ErrNoTime  = errors.New("not a time: write it like 500ms, 10s, 1h30m, 7d or 1w")
	errNoUnit  = errors.New("no unit")
	errTooLong = errors.New("too long")
)

// parsePart reads one number with its unit. number holds digits and dots alone.
func parsePart(number, unit string) (time.Duration, error) {
	times := time.Duration(1)
	switch unit {
	case "":
		return 0, errNoUnit
	case "d":
		unit, times = "h", 24
	case "w":
		unit, times = "h", 7*24
	}
	part, err := time.ParseDuration(number + unit)
	if err != nil {
		// Package time has no error value for a number that is too large. If the unit is
		// right with another number, the number is too large.
		if _, unitErr := time.ParseDuration("1" + unit); unitErr == nil && strings.Count(number, ".") < 2 && number != "." && number != "" {
			return 0, errTooLong
		}
		return 0, err
	}
	if part > math.MaxInt64/times {
		return 0, errTooLong
	}
	return part * times, nil
}

// FormatDuration writes a time as [ParseDuration] reads it, without units of which there are none
// at its end: 13d22h59m59s, 1d12h, 1m.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if days := d / Day; days != 0 {
		text = fmt.Sprintf("%dd", days)
		if rest := d % Day; rest != 0 {
			text += rest.Abs().String()
		}
	}
	for _, empty := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, empty) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func isNumeric(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

func span(s string, accept func(byte) bool) int {
	for i := range len(s) {
		if !accept(s[i]) {
			return i
		}
	}
	return len(s)
}
