// Package random gives tests their random numbers, and says how long random histories are. One
// number repeats every random history of a test that failed.
package random

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const (
	// SeedVariable names the environment variable that repeats a failed test.
	SeedVariable = "SLIDEGATE_TEST_SEED"
	// longVariable names the environment variable that asks for long histories. make test-long
	// sets it.
	longVariable = "SLIDEGATE_TEST_LONG"
	// stepsVariable names the environment variable that has the number of steps. make fuzz sets
	// it for the tests that it runs.
	stepsVariable = "SLIDEGATE_TEST_STEPS"
)

// Seed returns the number of the environment variable SLIDEGATE_TEST_SEED, or a random number.
// If the test fails, its output has the number in the form of the variable.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(SeedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", SeedVariable, seed)
		}
	})
	return seed
}

// Rand returns a generator for a [Seed]. Generators with other streams give other numbers.
func Rand(t testing.TB, stream uint64) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), stream))
}

// Steps returns how many steps a test makes: quick in make test, long in make test-long. The
// environment variable SLIDEGATE_TEST_STEPS replaces both.
func Steps(t testing.TB, quick, long int) int {
	t.Helper()
	if s := os.Getenv(stepsVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", stepsVariable, err)
		}
		return n
	}
	if Long() {
		return long
	}
	return quick
}

// Long reports whether the environment asks for long histories.
func Long() bool { return os.Getenv(longVariable) != "" }
