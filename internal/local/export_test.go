package local

import "time"

// Believed is for a table.
var Believed = believed

// AnswerExactly leaves to the store whatever the memory could only answer with a
// lower bound of a wait, or with what remained at another instant. Then every
// answer can be compared with that of the store alone.
func (s *Store) AnswerExactly() {
	s.memory.exact = true
	s.memory.statusAge = 2 * time.Microsecond // sent is set back by one
}
