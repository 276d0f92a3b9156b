package replay

import "maps"

// A logTable keeps one number for each log, by the log's hash. Its memory has a bound: above it the
// table keeps only those whose hashes end with zeros, so that a log of a smaller and smaller share is
// kept. The hash decides, not the order, so the kept logs are a fair sample.
type logTable struct {
	of   map[uint64]uint64
	most int
	// level is how many zeros a hash ends with: one log of 2^level is kept.
	level uint
}

// maxTable bounds the logs of a tally.
const maxTable = 3 << 20

func newLogTable(most int) *logTable { return &logTable{of: make(map[uint64]uint64), most: most} }

// keeps reports whether a log is one of those that are kept.
func (t *logTable) keeps(hash uint64) bool { return hash&(t.times()-1) == 0 }

// set sets the number of a log that is kept.
func (t *logTable) set(hash, value uint64) {
	t.of[hash] = value
	if len(t.of) > t.most {
		t.level++
		maps.DeleteFunc(t.of, func(hash, _ uint64) bool { return !t.keeps(hash) })
	}
}

// times is how many logs one kept log stands for.
func (t *logTable) times() uint64 { return 1 << t.level }
