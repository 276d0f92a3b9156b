package figures

import "slices"

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

// Ratios divides figure by figure: both lists are in the order of the rounds.
func Ratios(ours, base []float64) []float64 {
	r := make([]float64, len(ours))
	for i := range ours {
		r[i] = ours[i] / base[i]
	}
	return r
}
