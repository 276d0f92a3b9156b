package stats

import (
	"context"
	"maps"
	"math"
	"net"
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
	// flushTimeout bounds a flush, and lastTimeout the one when the process stops.
	flushTimeout = 10 * time.Second
	lastTimeout  = time.Second
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

// A Sender sends metrics to a statsd server at intervals, in the lines of lyft/gostats, each time
// over a new connection. Counters are sent as what was added since they were sent last. If a server
// over TCP is unavailable, that waits in the counters, and the times of calls are dropped.
type Sender struct {
	stats       *Stats
	options     SenderOptions
	tags        string // appended to names
	unavailable bool   // the last flush failed

	conn    net.Conn // of the flush
	lines   []byte   // not written yet
	pending []sent   // counters in lines
}

// sent is what a counter has once its line is sent.
type sent struct {
	counter *counter
	value   uint64
}

// NewSender returns a sender of the metrics. [Options.Times] of stats must be true. Only one
// sender may send the metrics of a Stats.
func NewSender(stats *Stats, o SenderOptions) *Sender {
	s := &Sender{stats: stats, options: o}
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
	for {
		select {
		case <-tick.C:
			s.flush(ctx, flushTimeout)
		case <-ctx.Done():
			s.flush(context.WithoutCancel(ctx), lastTimeout)
			return nil
		}
	}
}

// flush sends everything that is new, within a timeout. It logs the first of several failures.
func (s *Sender) flush(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.send(ctx)
	switch {
	case err == nil && s.unavailable:
		s.options.Log.Info("the statsd server is reached again", zap.String("address", s.options.Address))
	case err != nil && !s.unavailable:
		s.options.Log.Warn("the statsd server cannot be reached; counts wait until it can; check STATSD_HOST and STATSD_PORT",
			zap.String("address", s.options.Address), zap.String("protocol", s.options.Network), zap.Error(err))
	}
	if s.unavailable = err != nil; s.unavailable {
		for _, m := range s.stats.methods {
			m.times.take() // no server gets them
		}
	}
}

func (s *Sender) send(ctx context.Context) (err error) {
	if s.conn, err = new(net.Dialer).DialContext(ctx, s.options.Network, s.options.Address); err != nil {
		return err
	}
	defer func() { _ = s.conn.Close() }() // it only reads now
	s.lines, s.pending = s.lines[:0], s.pending[:0]
	deadline, _ := ctx.Deadline()
	if err = s.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	for _, c := range s.stats.counters() {
		value := c.read()
		if value <= c.sent {
			continue
		}
		if err = s.line(c.name, strconv.FormatUint(value-c.sent, 10), "|c"); err != nil {
			return err
		}
		s.pending = append(s.pending, sent{c, value})
	}
	s.stats.mu.RLock()
	gauges := slices.Clone(s.stats.gauges)
	s.stats.mu.RUnlock()
	for _, g := range gauges {
		if err = s.line(g.name, strconv.FormatUint(g.read(), 10), "|g"); err != nil {
			return err
		}
	}
	if err = s.times(); err != nil {
		return err
	}
	return s.write(len(s.lines))
}

// times sends the times of calls. If there were more calls than are kept, each time stands for
// several calls, and its line has the rate of the sample.
func (s *Sender) times() error {
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
			kind, decimals := "|ms", 6 // as lyft/gostats
			if ms == math.Trunc(ms) {
				decimals = 0
			}
			if stands > 1 {
				kind += "|@" + rate(stands)
			}
			if err := s.line(m.name, strconv.FormatFloat(ms, 'f', decimals, 64), kind); err != nil {
				return err
			}
		}
	}
	return nil
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

// line appends a line. If the lines are then too many for one write, it writes those before.
func (s *Sender) line(name, value, kind string) error {
	before, most := len(s.lines), maxWrite
	if s.options.Network == "udp" {
		most = maxDatagram
	}
	s.lines = append(s.lines, name...)
	s.lines = append(s.lines, s.tags...)
	s.lines = append(s.lines, ':')
	s.lines = append(s.lines, value...)
	s.lines = append(s.lines, kind...)
	s.lines = append(s.lines, '\n')
	if len(s.lines) > most {
		return s.write(before)
	}
	return nil
}

// write writes the first bytes of the lines, with which all pending counters are sent. After an error
// they keep what they have for the next flush.
func (s *Sender) write(length int) error {
	if length == 0 {
		return nil
	}
	if _, err := s.conn.Write(s.lines[:length]); err != nil {
		return err
	}
	s.lines = append(s.lines[:0], s.lines[length:]...)
	for _, p := range s.pending {
		p.counter.sent = p.value
	}
	s.pending = s.pending[:0]
	return nil
}
