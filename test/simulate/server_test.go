package simulate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server is one Redis: its data, its clock, and the faults that it has.
type server struct {
	w       *world
	number  int
	name    string
	data    data
	scripts map[string]string // by their names
	asking  bool              // the next command may be for a slot that moves here
	offset  time.Duration     // of its clock
	clocks  []clockAt

	down   bool
	frozen time.Duration // until when it runs nothing
	losses []loss
}

// A clockAt says that a server's clock was ahead of the world's since then.
type clockAt struct {
	since  time.Duration
	offset time.Duration
}

// A loss says that a server has lost what was written between two moments. After a restart without
// a file, it has lost everything: from is zero.
type loss struct{ from, at time.Duration }

// followed is the data of a replica: as it was a moment ago.
type followed struct {
	at     time.Duration
	values map[string]value
}

func newServer(w *world, number int) *server {
	s := &server{w: w, number: number, name: fmt.Sprintf("redis-%d:6379", number), scripts: make(map[string]string)}
	s.data.values = make(map[string]value)
	s.clocks = []clockAt{{-counted, 0}}
	s.frozen = -counted
	return s
}

// clocksOf returns the earliest and the latest that a log may have taken for the server's clock between two moments.
func (s *server) clocksOf(from, to time.Duration) (earliest, latest time.Duration) {
	earliest, _ = s.clockOf(from)
	for _, c := range s.clocks {
		if c.since > from && c.since <= to {
			earliest = min(earliest, c.since+c.offset)
		}
	}
	_, latest = s.clockOf(to)
	return earliest, latest
}

// clockOf returns the bounds of what a log took for the server's clock at a moment. If the clock was
// set back, a log stays at its last write until the clock has caught up.
func (s *server) clockOf(at time.Duration) (clock, latest time.Duration) {
	for i, c := range s.clocks {
		if c.since > at {
			break
		}
		until := at
		if i+1 < len(s.clocks) {
			until = min(until, s.clocks[i+1].since)
		}
		clock = until + c.offset
		latest = max(latest, clock)
	}
	return clock, latest
}

// tick reads the clock.
func (s *server) tick() { s.data.clock = time.Now().Add(s.offset).UnixMicro() }

// offsetAt returns by how much the clock is ahead at a moment.
func (s *server) offsetAt(at time.Duration) (offset time.Duration) {
	for _, c := range s.clocks {
		if c.since <= at {
			offset = c.offset
		}
	}
	return offset
}

// setClock sets the clock. The caller holds the world's mu.
func (s *server) setClock(offset time.Duration) {
	s.offset = offset
	s.clocks = append(s.clocks, clockAt{s.w.now(), offset})
}

// lose makes the server one that has only the data of a moment. The caller holds the world's mu.
func (s *server) lose(from time.Duration, values map[string]value) {
	s.losses = append(s.losses, loss{from, s.w.now()})
	s.data.values = values
	s.scripts = make(map[string]string)
	s.w.hangUp(func(p *pipe) bool { return p.server == s })
}

// hangUp closes the connections that a function chooses, one after the other: no two things happen at
// once. The caller holds mu.
func (w *world) hangUp(chosen func(*pipe) bool) {
	var all []*pipe
	for p := range w.conns {
		if chosen(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pipe) int { return a.number - b.number })
	w.running.Go(func() {
		for _, p := range all {
			time.Sleep(time.Microsecond)
			_ = p.Close()
		}
	})
}

// A pipe is the server's end of a connection.
type pipe struct {
	net.Conn
	number int
	server *server
	from   *instance
}

// dial connects an instance to the server.
func (s *server) dial(ctx context.Context, from *instance) (net.Conn, error) {
	s.w.mu.Lock()
	s.w.dials++
	number := s.w.dials // those that begin together end one after the other
	s.w.mu.Unlock()
	if !s.w.pause(ctx, s.w.travel("dial", from.name, s.name)+time.Duration(number%1000)) {
		return nil, ctx.Err()
	}
	if s.w.cut(from, s) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.down || s.w.over {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	client, end := net.Pipe()
	s.w.dialled++
	p := &pipe{end, s.w.dialled, s, from}
	s.w.conns[p] = struct{}{}
	s.w.running.Go(p.serve)
	return clientConn{client, p}, nil
}

// A clientConn is the instance's end of a connection. go-redis sees before it uses a connection whether the
// server has closed it, as on a socket.
type clientConn struct {
	net.Conn
	other *pipe
}

func (c clientConn) SyscallConn() (syscall.RawConn, error) { return socket{c.other}, nil }

type socket struct{ other *pipe }

func (socket) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (socket) Write(func(uintptr) bool) error { return errors.ErrUnsupported }

func (s socket) Read(func(uintptr) bool) error {
	w := s.other.server.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.conns[s.other]; !open {
		return io.EOF
	}
	return nil
}

// pause waits. It returns false if ctx ended before.
func (w *world) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cut reports whether no message gets from an instance to a server now.
func (w *world) cut(from *instance, to *server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return from.gone || w.now() < from.cut[to.number]
}

// thaw waits until neither the instance nor the server is frozen.
func (p *pipe) thaw(what uint64) {
	for {
		p.server.w.mu.Lock()
		d := max(p.from.frozen, p.server.frozen) - p.server.w.now()
		p.server.w.mu.Unlock()
		if d <= 0 {
			return
		}
		time.Sleep(d + p.server.w.travel("thaw", what)/50)
	}
}

// serve answers commands until the connection is closed.
func (p *pipe) serve() {
	w := p.server.w
	defer func() {
		_ = p.Close()
		w.mu.Lock()
		delete(w.conns, p)
		w.mu.Unlock()
	}()
	in := bufio.NewReaderSize(p, 1<<16)
	var out bytes.Buffer
	for {
		var commands [][]string
		for len(commands) == 0 || in.Buffered() > 0 {
			c, err := readCommand(in)
			if err != nil {
				return
			}
			commands = append(commands, c)
		}
		what := hash(0, commands)
		time.Sleep(w.travel("to", p.from.name, p.server.name, what))
		if w.loses(p, "request") {
			_, _ = io.Copy(io.Discard, p)
			return
		}
		p.thaw(what)
		out.Reset()
		if !p.answer(&out, commands) {
			return
		}
		time.Sleep(w.travel("from", p.from.name, p.server.name, what))
		p.thaw(what)
		if w.loses(p, "reply") {
			_, _ = io.Copy(io.Discard, p)
			return
		}
		if _, err := p.Write(out.Bytes()); err != nil {
			return
		}
	}
}

// answer runs commands. It returns false if the server is down.
func (p *pipe) answer(out *bytes.Buffer, commands [][]string) bool {
	p.server.w.mu.Lock()
	defer p.server.w.mu.Unlock()
	for _, c := range commands {
		if !p.server.down {
			writeReply(out, p.server.run(p.from, c))
		}
	}
	return !p.server.down
}

// loses reports whether a message is lost now. The connection then hangs, as TCP does while it sends
// the message again and again.
func (w *world) loses(p *pipe, what string) bool {
	if w.cut(p.from, p.server) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rate := p.server.lossy(w)
	return rate > 0 && w.number("lost", what, p.from.name, p.server.name, int64(w.now()))%1000 < uint64(rate)
}

// lossy returns how many of a thousand messages are lost now. The caller holds mu.
func (s *server) lossy(w *world) int {
	rate := 0
	for _, f := range w.plan.Faults {
		if f.Kind == faultLoss && f.Who == s.number && f.At <= w.now() && w.now() < f.At+f.For {
			rate = max(rate, f.Size)
		}
	}
	return rate
}

// run runs one command. The caller holds the world's mu.
func (s *server) run(from *instance, args []string) any {
	s.tick()
	if err := s.redirects(args); err != nil {
		return err
	}
	switch strings.ToLower(args[0]) {
	case "evalsha":
		text, ok := s.scripts[strings.ToLower(args[1])]
		if !ok {
			return errors.New("NOSCRIPT No matching script.") //nolint:revive // Redis says so
		}
		return s.eval(from, text, args)
	case "eval":
		s.scripts[sha(args[1])] = args[1]
		return s.eval(from, args[1], args)
	case "script":
		s.scripts[sha(args[2])] = args[2]
		return sha(args[2])
	case "info":
		return "maxmemory_policy:noeviction\r\n"
	case "ping", "select", "client":
		return "OK"
	case "hello":
		return errors.New("ERR unknown command 'HELLO'")
	case "asking":
		s.asking = true
		return "OK"
	}
	return s.data.do(args)
}

// eval runs a script.
func (s *server) eval(from *instance, text string, args []string) any {
	n, err := strconv.Atoi(args[2])
	if err != nil || len(args) < 3+n {
		return errors.New("ERR bad number of keys")
	}
	keys, argv := args[3:3+n:3+n], args[3+n:]
	if instead := s.w.mutants.instead; instead != nil {
		if answer := instead(text, keys, argv); answer != nil {
			return answer
		}
	}
	before := s.watch(keys)
	if s.w.mutants.redirected && s.w.slots.sent[hash(0, args)] {
		s.w.host.run(&s.data, text, keys, argv)
	}
	reply := s.w.host.run(&s.data, s.w.mutants.script(text), keys, argv)
	if s.w.mutants.twice && s.w.number("twice", s.data.clock)%1000 == 0 {
		reply = s.w.host.run(&s.data, text, keys, argv)
	}
	s.w.changed(s, from, before)
	s.spend()
	if all := s.w.mutants.record; all != nil {
		for len(*all) < len(s.w.servers) {
			*all = append(*all, nil)
		}
		(*all)[s.number] = append((*all)[s.number], scriptCall{text, keys, argv, s.data.clock, s.data.gone, reply})
		s.data.gone = nil
	}
	if err, ok := reply.(error); ok {
		s.w.breaks("The script never fails.", "%s of %s: %v", scriptName(text), from.name, err)
	}
	return reply
}

// scriptName returns the name of a script's file: its first words.
func scriptName(text string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "-- "), " ")
	return name
}

// readCommand reads one command of the protocol of Redis.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readNumber(in, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readNumber(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readNumber(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 3 || line[0] != kind {
		return 0, fmt.Errorf("the client sent %q", line)
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

func writeReply(out *bytes.Buffer, v any) {
	switch v := v.(type) {
	case nil:
		out.WriteString("$-1\r\n")
	case error:
		fmt.Fprintf(out, "-%s\r\n", strings.ReplaceAll(v.Error(), "\n", " "))
	case int64:
		fmt.Fprintf(out, ":%d\r\n", v)
	case string:
		fmt.Fprintf(out, "$%d\r\n", len(v))
		out.WriteString(v)
		out.WriteString("\r\n")
	case []any:
		fmt.Fprintf(out, "*%d\r\n", len(v))
		for _, one := range v {
			writeReply(out, one)
		}
	case []string:
		fmt.Fprintf(out, "*%d\r\n", len(v))
		for _, one := range v {
			writeReply(out, one)
		}
	}
}
