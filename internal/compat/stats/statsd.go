package stats

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Bounds of a [Sender].
const (
	// maxDatagram is the most bytes of a UDP datagram that no network of Ethernet size splits.
	maxDatagram = 1432
	// maxWrite is the most bytes of one write over TCP.
	maxWrite = 64 << 10
	// dialTimeout bounds a connection attempt, and writeTimeout a write.
	dialTimeout  = 2 * time.Second
	writeTimeout = time.Second
	// flushTimeout bounds all writes of a flush.
	flushTimeout = 10 * time.Second
	// minRetry and maxRetry bound the time between two connection attempts.
	minRetry = time.Second
	maxRetry = time.Minute
)

// SenderOptions say where a [Sender] sends. All but Tags are required.
type SenderOptions struct {
	// Network is tcp or udp, and Address is host:port.
	Network, Address string
	Interval         time.Duration
	// Tags are appended to every name.
	Tags map[string]string
	Log  *zap.Logger
}

// A Sender sends metrics to a statsd server at intervals, in the lines of lyft/gostats. Counters
// are sent as what was added since they were sent last. If the server is away, that waits in the
// counters, and the times of calls are dropped.
type Sender struct {
	stats   *Stats
	options SenderOptions
	tags    string // appended to names

	conn  net.Conn // nil: not connected
	away  bool     // it has failed since good was reset
	good  int      // flushes in a row without a failure
	retry time.Duration
	after time.Time // earliest time of the next attempt to connect
	until time.Time // latest time for the writes of a flush

	lines   []byte
	pending []sent // counters whose lines are in lines
}

// sent is what a counter has once its line is sent.
type sent struct {
	counter *counter
	value   uint64
	end     int // of its line, in lines
}

// NewSender returns a sender of the metrics. [Options.Times] of stats must be true. Only one
// sender may send the metrics of a Stats.
func NewSender(stats *Stats, o SenderOptions) *Sender {
	s := &Sender{stats: stats, options: o, retry: minRetry}
	unsafe := strings.NewReplacer(".", "_", ":", "_", "|", "_")
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		s.tags += ".__" + clean(k) + "=" + unsafe.Replace(clean(o.Tags[k]))
	}
	return s
}

// Run sends until ctx ends, and then once more. It always returns nil.
func (s *Sender) Run(ctx context.Context) error {
	tick := time.NewTicker(s.options.Interval)
	defer tick.Stop()
	s.connect(ctx)
	for {
		select {
		case <-tick.C:
			s.flush(ctx, flushTimeout)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
			defer cancel()
			s.after = time.Time{}
			s.flush(last, writeTimeout)
			if s.conn != nil {
				_ = s.conn.Close() // there is nothing to do about an error
			}
			return nil
		}
	}
}

// flush sends everything that is new, within a timeout.
func (s *Sender) flush(ctx context.Context, timeout time.Duration) {
	s.until = time.Now().Add(timeout)
	s.checkAlive()
	if !s.connect(ctx) {
		for _, m := range s.stats.methods {
			m.times.take() // no server gets them
		}
		return
	}
	if !s.counters() || !s.gauges() || !s.times() || !s.write(len(s.lines)) {
		return
	}
	// A UDP socket reports only at the next write that no server listens.
	if s.good++; s.away && s.good >= 2 {
		s.away = false
		s.options.Log.Info("the statsd server is reached again", zap.String("address", s.options.Address))
	}
	if !s.away {
		s.retry = minRetry
	}
}

// counters sends what was added to the counters.
func (s *Sender) counters() bool {
	for _, c := range s.stats.counters() {
		value := c.read()
		if value <= c.sent {
			continue
		}
		s.line(c.name, strconv.FormatUint(value-c.sent, 10), "|c")
		s.pending = append(s.pending, sent{c, value, len(s.lines)})
		if !s.writeFull() {
			return false
		}
	}
	return true
}

// gauges sends the gauges.
func (s *Sender) gauges() bool {
	s.stats.mu.RLock()
	gauges := slices.Clone(s.stats.gauges)
	s.stats.mu.RUnlock()
	for _, g := range gauges {
		s.line(g.name, strconv.FormatUint(g.read(), 10), "|g")
		if !s.writeFull() {
			return false
		}
	}
	return true
}

// times sends the times of calls. If there were more calls than are kept, each time stands for
// several calls, and its line has the rate of the sample.
func (s *Sender) times() bool {
	for _, m := range s.stats.methods {
		values, left := m.times.take()
		if len(values) == 0 {
			continue
		}
		kept := uint64(len(values))
		each := (left + kept - 1) / kept
		for _, ms := range values {
			stands := min(each, left)
			if stands == 0 {
				break
			}
			left -= stands
			kind := "|ms"
			if stands > 1 {
				kind += "|@" + rate(stands)
			}
			s.line(m.name, formatTime(ms), kind)
			if !s.writeFull() {
				return false
			}
		}
	}
	return true
}

// rate returns 1/n, rounded down, so that a server that divides 1 by it and drops the fraction
// gets n.
func rate(n uint64) string {
	r := 1 / float64(n)
	for uint64(1/r) < n {
		r = math.Nextafter(r, 0)
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// formatTime returns a time as lyft/gostats writes it.
func formatTime(ms float64) string {
	if ms == math.Trunc(ms) {
		return strconv.FormatFloat(ms, 'f', 0, 64)
	}
	return strconv.FormatFloat(ms, 'f', 6, 64)
}

// line appends a line.
func (s *Sender) line(name, value, kind string) {
	s.lines = append(s.lines, name...)
	s.lines = append(s.lines, s.tags...)
	s.lines = append(s.lines, ':')
	s.lines = append(s.lines, value...)
	s.lines = append(s.lines, kind...)
	s.lines = append(s.lines, '\n')
}

// writeFull writes the lines if there are enough for one write. With UDP it leaves the last line
// for the next datagram.
func (s *Sender) writeFull() bool {
	if s.options.Network != "udp" {
		return len(s.lines) < maxWrite || s.write(len(s.lines))
	}
	if len(s.lines) <= maxDatagram {
		return true
	}
	end := len(s.lines) - 1
	for end > 0 && s.lines[end-1] != '\n' {
		end--
	}
	if end == 0 {
		end = len(s.lines) // one line that is too long
	}
	return s.write(end)
}

// write writes the first bytes of the lines. It reports false if that fails: the counters in the
// lines then keep what they have for the next time.
func (s *Sender) write(length int) bool {
	if length == 0 {
		return true
	}
	deadline := time.Now().Add(writeTimeout)
	if s.until.Before(deadline) {
		deadline = s.until
	}
	err := s.conn.SetWriteDeadline(deadline)
	if err == nil {
		_, err = s.conn.Write(s.lines[:length])
	}
	if err != nil {
		s.lost(err)
		return false
	}
	s.lines = append(s.lines[:0], s.lines[length:]...)
	kept := s.pending[:0]
	for _, p := range s.pending {
		if p.end <= length {
			p.counter.sent = p.value
			continue
		}
		p.end -= length
		kept = append(kept, p)
	}
	s.pending = kept
	return true
}

// lost forgets the connection after an error.
func (s *Sender) lost(err error) {
	_ = s.conn.Close() // it is broken
	s.conn, s.lines, s.pending = nil, s.lines[:0], s.pending[:0]
	s.failed(err)
}

// failed notes a failure, and warns about the first of several.
func (s *Sender) failed(err error) {
	s.good = 0
	if !s.away {
		s.away = true
		s.options.Log.Warn("the statsd server cannot be reached; counts wait until it can; check STATSD_HOST and STATSD_PORT",
			zap.String("address", s.options.Address), zap.String("protocol", s.options.Network), zap.Error(err))
	}
	s.after = time.Now().Add(s.retry)
	s.retry = min(2*s.retry, maxRetry)
}

// connect reports whether there is a connection. It makes one if the last failure is long enough
// ago.
func (s *Sender) connect(ctx context.Context) bool {
	if s.conn != nil {
		return true
	}
	if time.Now().Before(s.after) {
		return false
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, s.options.Network, s.options.Address)
	if err != nil {
		s.failed(err)
		return false
	}
	s.conn = conn
	return true
}

// checkAlive forgets a connection that the server has closed. Without it, the first write after
// that would seem to succeed. Servers send nothing.
func (s *Sender) checkAlive() {
	if s.conn == nil {
		return
	}
	err := s.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	if err == nil {
		_, err = io.Copy(io.Discard, s.conn)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
	case err == nil: // the end of the connection
		_ = s.conn.Close()
		s.conn, s.good = nil, 0 // a server that restarts may be there at once
	default:
		s.lost(err)
	}
}
