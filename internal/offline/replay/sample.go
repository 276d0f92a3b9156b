package replay

// maxRemembered bounds the bytes that a replay remembers of logs outside the stores.
const maxRemembered = 256 << 20

// A sample bounds what a replay remembers of logs. Above its bound it keeps only the logs whose hashes
// end with one more zero. The hash decides, not the order, so the kept logs are a fair sample, and what
// they count stands for the others too.
type sample struct {
	bytes, most int
	level       uint // how many zeros a hash ends with
	// holders drop the logs that are not kept. now is in microseconds.
	holders []func(now int64)
}

// keeps reports whether a log is one of those that are kept.
func (s *sample) keeps(hash uint64) bool { return hash&(s.times()-1) == 0 }

// times is how many logs one kept log stands for.
func (s *sample) times() uint64 { return 1 << s.level }

// fraction is the fraction of the logs that is kept.
func (s *sample) fraction() float64 { return 1 / float64(s.times()) }

// bound drops logs until the others fit: first those in which nothing counts, and if that is not half of
// them, every second one.
func (s *sample) bound(now int64) {
	for most := s.most; s.bytes > most; most = s.most / 2 {
		if most < s.most {
			s.level++
		}
		for _, drop := range s.holders {
			drop(now)
		}
	}
}
