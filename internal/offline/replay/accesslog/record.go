package accesslog

import "time"

// A State says what a log knows of an attribute of a request.
type State uint8

// The states of a [Value].
const (
	Unreported State = iota // the format of the log does not have the attribute
	Absent                  // the request had none
	Present
)

// A Value is the value of an attribute. Its zero value is [Unreported].
type Value struct {
	Text  []byte // empty unless the state is Present
	State State
}

// A Record is one request of a log. Its values are valid until the next record is read.
type Record struct {
	// At is when the request started, since 1970-01-01 UTC.
	At time.Duration
	// File is the index of the file, and Line the number of the line in it, from 1.
	File int
	Line int64
	// Values has a value for each attribute that the caller wants, in that order.
	Values []Value
}
