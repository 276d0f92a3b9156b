package replay

import "maps"

// A logTable keeps the use of each log, by the log's hash. Its memory has a bound: above it the
// table keeps only those whose hashes end with zeros, so that a log of a smaller and smaller share is
// kept. The hash decides, not the order, so the kept logs are a fair sample.
type logTable struct {
	of   map[uint64]logUse
	most int
	// level is how many zeros a hash ends with: one log of 2^level is kept.
	level uint
}

// A logUse is what is known of a log.
type logUse struct {
	caller  uint64 // see [meeting]
	highest uint32 // use of the limit
	part    uint32 // index
	denied  bool
}

// maxTable bounds the logs of a tally.
const maxTable = 2 << 20

func newLogTable(most int) *logTable { return &logTable{of: make(map[uint64]logUse), most: most} }

// keeps reports whether a log is one of those that are kept.
func (t *logTable) keeps(hash uint64) bool { return hash&(t.times()-1) == 0 }

// set sets the use of a log that is kept.
func (t *logTable) set(hash uint64, use logUse) {
	t.of[hash] = use
	if len(t.of) > t.most {
		t.level++
		maps.DeleteFunc(t.of, func(hash uint64, _ logUse) bool { return !t.keeps(hash) })
	}
}

// times is how many logs one kept log stands for.
func (t *logTable) times() uint64 { return 1 << t.level }
