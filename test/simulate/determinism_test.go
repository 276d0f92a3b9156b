package simulate

import "testing"

// TestSameHistory runs plans twice: the same seed gives the same history. Otherwise the story of a seed
// could not be told again.
func TestSameHistory(t *testing.T) {
	first, count := seeds(2)
	for seed := first; seed < first+count; seed++ {
		one, other := run(t, newPlan(seed), mutants{}).story(), run(t, newPlan(seed), mutants{}).story()
		if one != other {
			at := 0
			for at < min(len(one), len(other)) && one[at] == other[at] {
				at++
			}
			t.Errorf("seed %d has two histories, which differ here:\n%.300s\n\n%.300s", seed, one[max(at-100, 0):], other[max(at-100, 0):])
		}
	}
}
