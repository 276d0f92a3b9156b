// Package figures is how the benchmark programs turn the samples of their rounds
// into medians and ratios.
package figures
