package main

import (
	"fmt"

	"github.com/slidegate/slidegate/bench/internal/figures"
	"github.com/slidegate/slidegate/bench/internal/metrics"
)

// The growth that is allowed from the third quarter of the time to the last, besides a
// tenth. Connections open at random times, and memory grows in spans.
const (
	moreGoroutines = 10
	moreFiles      = 10
	moreHeap       = 2e6
	moreResident   = 8e6
)

// fewest is how many states a quarter must have to be compared.
const fewest = 2

// left is how many more goroutines and files the service may have after all clients are gone.
// A connection to the admin port or a running sweeper needs some.
const left = 5

// grown reports what has grown in the last half.
func grown(states []metrics.State) []string {
	half := states[len(states)/2:]
	third, fourth := half[:len(half)/2], half[len(half)/2:]
	if len(third) < fewest {
		return nil
	}
	var all []string
	for _, g := range []struct {
		what   string
		figure func(metrics.State) float64
		more   float64
	}{
		{"goroutines", func(s metrics.State) float64 { return s.Goroutines }, moreGoroutines},
		{"open files", func(s metrics.State) float64 { return s.Files }, moreFiles},
		{"bytes of live heap", func(s metrics.State) float64 { return s.Heap }, moreHeap},
		{"bytes of resident memory", func(s metrics.State) float64 { return s.Resident }, moreResident},
	} {
		before, after := figures.Median(figures.Column(third, g.figure)), figures.Median(figures.Column(fourth, g.figure))
		if after > before*1.1+g.more {
			all = append(all, fmt.Sprintf("%.0f %s in the last quarter, %.0f in the one before", after, g.what, before))
		}
	}
	return all
}

// remains reports goroutines and files that are left when all clients are gone.
func remains(before, after metrics.State) []string {
	var all []string
	if after.Goroutines > before.Goroutines+left {
		all = append(all, fmt.Sprintf("%.0f goroutines when all clients are gone, %.0f before they came", after.Goroutines, before.Goroutines))
	}
	if after.Files > before.Files+left {
		all = append(all, fmt.Sprintf("%.0f open files when all clients are gone, %.0f before they came", after.Files, before.Files))
	}
	return all
}
