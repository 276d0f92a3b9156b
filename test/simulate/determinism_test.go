package simulate

import "testing"

// TestSameHistory runs plans twice: the same seed gives the same history. Otherwise the story of a seed
// could not be told again. On a busy machine the scheduler of Go may stop a goroutine at any place, and another
// one goes on first. So of three histories, two are the same.
func TestSameHistory(t *testing.T) {
	first, count := seeds(2)
	for seed := first; seed < first+count; seed++ {
		one, other := run(t, newPlan(seed), mutants{}).story(), run(t, newPlan(seed), mutants{}).story()
		if sha(one) == sha(other) {
			continue
		}
		if third := sha(run(t, newPlan(seed), mutants{}).story()); third == sha(one) || third == sha(other) {
			continue
		}
		at := 0
		for at < min(len(one), len(other)) && one[at] == other[at] {
			at++
		}
		t.Errorf("seed %d has three histories, of which two differ here:\n%.300s\n\n%.300s", seed, one[max(at-100, 0):], other[max(at-100, 0):])
	}
}
