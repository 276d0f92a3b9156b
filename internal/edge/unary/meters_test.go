package unary_test

import (
	"sync"

	"golang.org/x/net/http2"
)

// countingMeters are Meters for tests to read.
type meters struct {
	mu             sync.Mutex
	opened, closed int
	resets         map[http2.ErrCode]int // by the server
	byClient       int                   // by clients
	reasons        map[string]int
}

func newCountingMeters() *meters {
	return &meters{resets: map[http2.ErrCode]int{}, reasons: map[string]int{}}
}

// Opened implements unary.Meters.
func (l *meters) Opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
}

// Closed implements unary.Meters.
func (l *meters) Closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
}

// Reset implements unary.Meters.
func (l *meters) Reset(byServer bool, code http2.ErrCode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if byServer {
		l.resets[code]++
	} else {
		l.byClient++
	}
}

// GoAway implements unary.Meters.
func (l *meters) GoAway(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reasons[reason]++
}

// reset returns how often the server has reset a stream with code.
func (l *meters) reset(code http2.ErrCode) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resets[code]
}

// goAways returns how often connections were ended, by reason.
func (l *meters) goAways() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for r, n := range l.reasons {
		out[r] = n
	}
	return out
}
