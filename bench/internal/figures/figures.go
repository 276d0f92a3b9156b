package figures

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Median returns the middle of values, which is not empty.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Column collects one figure of all samples.
func Column[S any](samples []S, figure func(S) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

// Ratios divides ours by base, figure by figure. Both are in the order of the rounds.
func Ratios(ours, base []float64) []float64 {
	r := make([]float64, len(ours))
	for i := range ours {
		r[i] = ours[i] / base[i]
	}
	return r
}

// Spread writes the median of ratios, with the smallest and the largest. digits is how
// many decimals it writes.
func Spread(ratios []float64, digits int) string {
	return fmt.Sprintf("**%.*f** (%.*f–%.*f)", digits, Median(ratios), digits, slices.Min(ratios), digits, slices.Max(ratios))
}

// Head writes the first two lines of a Markdown table. header is the first one.
func Head(w io.Writer, header string) {
	fmt.Fprintf(w, "%s\n%s|\n", header, strings.Repeat("|---", strings.Count(header, "|")-1))
}
