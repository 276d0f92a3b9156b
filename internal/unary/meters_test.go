package unary_test

import (
	"sync"

	"golang.org/x/net/http2"

	"github.com/slidegate/slidegate/internal/unary"
)

// A ledger is Meters that remember.
type ledger struct {
	mu             sync.Mutex
	opened, closed int
	traffic        unary.Traffic
	resets         map[http2.ErrCode]int // by the server
	theirs         int                   // by clients
	reasons        map[string]int
}

func newLedger() *ledger { return &ledger{resets: map[http2.ErrCode]int{}, reasons: map[string]int{}} }

// Opened implements unary.Meters.
func (l *ledger) Opened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
}

// Closed implements unary.Meters.
func (l *ledger) Closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
}

// Traffic implements unary.Meters.
func (l *ledger) Traffic(t unary.Traffic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traffic.Streams += t.Streams
	l.traffic.Read += t.Read
	l.traffic.Written += t.Written
}

// Reset implements unary.Meters.
func (l *ledger) Reset(byServer bool, code http2.ErrCode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if byServer {
		l.resets[code]++
	} else {
		l.theirs++
	}
}

// GoAway implements unary.Meters.
func (l *ledger) GoAway(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reasons[reason]++
}

// reset returns how often the server has reset a stream with code.
func (l *ledger) reset(code http2.ErrCode) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resets[code]
}

// goAways returns why connections were ended, and how often.
func (l *ledger) goAways() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for r, n := range l.reasons {
		out[r] = n
	}
	return out
}
