package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// read parses the text of a field. It reports an error to d unless d is nil. Without a text it
// returns the zero value.
func read[T any](d *strict.Decoder, f *strict.Field[string], parse func(*strict.Field[string]) (T, error)) (value T) {
	if !strict.Given(f) {
		return value
	}
	value, err := parse(f)
	if err != nil && d != nil {
		d.Problem(f.Position, "%s", err)
	}
	return value
}

// parseObserved reads true, false or a percentage as a number from 0 to 1.
func parseObserved(f *strict.Field[string]) (float64, error) {
	text := f.Value
	if b, ok := strict.ParseTruth(text); ok {
		if b {
			return 1, nil
		}
		return 0, nil
	}
	percent, err := parsePercentage(text, "true, false or ")
	return percent / 100, err
}

// parseJitter reads a percentage as a number from 0 to 1.
func parseJitter(f *strict.Field[string]) (float64, error) {
	percent, err := parsePercentage(f.Value, "")
	return percent / 100, err
}

// parsePercentage reads a percentage from 0 to 100. others is what else the text
// may be, for a message.
func parsePercentage(text, others string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || strings.ContainsAny(number, "xXpPnN_"):
		return 0, fmt.Errorf("%s is not %sa percentage such as 25%%", strict.Quote(text), others)
	case !percent:
		return 0, fmt.Errorf("%s has no unit: write a percentage such as 25%%", strict.Quote(text))
	case value < 0 || value > 100:
		return 0, fmt.Errorf("%s is not between 0%% and 100%%", strict.Quote(text))
	}
	return value, nil
}
