package unary_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/window"
)

// A flusher counts its flushes. Each takes a time.
type flusher struct {
	flushes atomic.Int64
	takes   atomic.Int64 // nanoseconds
	ended   atomic.Int64 // calls that were given up
}

func (f *flusher) Flush() {
	f.flushes.Add(1)
	time.Sleep(time.Duration(f.takes.Load())) // in a bubble
}

// pause is a Handler that pauses. If the message has "twice", it pauses twice; with "then wait", it
// must wait after that; with "then panic", it panics.
func (p *testService) pause(ctx context.Context, wait bool, call *unary.Call, answer []byte) (out []byte, decided bool, err error) {
	if !wait {
		pauser := window.PauserOf(ctx)
		if pauser == nil {
			return nil, false, nil
		}
		until := &p.flusher
		if strings.Contains(call.Request, "far") {
			until = &p.far
		}
		for range 1 + strings.Count(call.Request, "twice") {
			if err := pauser.Pause(until); err != nil {
				until.ended.Add(1)
				return nil, true, err
			}
		}
		if strings.Contains(call.Request, "then panic") {
			panic("as asked")
		}
		if strings.Contains(call.Request, "then wait") {
			return nil, false, nil
		}
		if strings.Contains(call.Request, "until its") {
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end) / 2)
		}
		if _, timed := ctx.Deadline(); timed != strings.Contains(call.Request, "deadline") {
			return nil, true, status.Error(codes.Internal, "the deadline is wrong")
		}
	}
	do := func(_ context.Context, in []byte) ([]byte, error) { return in, nil }
	if wait {
		do = p.waitForGate
	}
	out, err = encoded(ctx, do, []byte(call.Request), answer)
	return out, true, err
}

// burst sends calls in one write, and returns their streams.
func (p *testClient) burst(messages ...string) (ids []uint32) {
	p.t.Helper()
	p.send(func(w *frameWriter) {
		for _, m := range messages {
			more := []string{}
			if strings.Contains(m, "deadline") {
				more = append(more, "grpc-timeout: 1S")
			}
			if strings.Contains(m, "near deadline") {
				more[0] = "grpc-timeout: 100m"
			}
			w.call(p.next, "Pause", value(m), more...)
			ids = append(ids, p.next)
			p.next += 2
		}
	})
	return ids
}

func (p *testClient) mustAnswer(id uint32, message string) {
	p.t.Helper()
	if a := p.answer(id); a.last("grpc-status") != "0" || content(p.t, a) != message {
		p.t.Fatalf("stream %d was answered %v, want %s", id, a, message)
	}
}

// TestBurst has calls of one write flushed once, and each answered with its own message.
func TestBurst(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		for round := range int64(3) {
			messages := []string{"a", "b with a deadline", "c", "d", "e"}
			for i, id := range p.burst(messages...) {
				p.mustAnswer(id, messages[i])
			}
			p.mustAnswer(p.burst("alone")[0], "alone")
			p.echo()
			if got := s.flusher.flushes.Load(); got != 2*(round+1) {
				t.Fatalf("%d flushes after %d bursts of several calls and as many of one", got, round+1)
			}
		}
		ids := p.burst("once", "twice")
		p.mustAnswer(ids[0], "once")
		p.mustAnswer(ids[1], "twice")
		if got := s.flusher.flushes.Load(); got != 8 {
			t.Errorf("%d flushes, want 2 for a call that pauses twice", got-6)
		}
	})
}

// TestBurstOfDeadlines has calls that wait until half of their time is over after the flush. None waits behind one
// that has more time.
func TestBurstOfDeadlines(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		messages := []string{"no end", "until its deadline", "until its near deadline", "no end either"}
		begun := time.Now()
		ids := p.burst(messages...)
		p.mustAnswer(ids[2], messages[2])
		if took := time.Since(begun); took != 50*time.Millisecond {
			t.Errorf("the call with a near deadline took %v", took)
		}
		for i, id := range ids {
			p.mustAnswer(id, messages[i])
		}
	})
}

// TestSlowBurst has a flush that takes long. Meanwhile the connection is read: PINGs and other calls are
// answered, and calls are reset.
func TestSlowBurst(t *testing.T) {
	const takes = 50 * time.Millisecond
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		p.echo()
		s.flusher.takes.Store(int64(takes))
		for range 3 {
			begun := time.Now()
			first := p.burst("a", "b", "c")
			_, before := p.pings()
			p.send(func(w *frameWriter) { must(w.fr.WritePing(false, [8]byte{1})) })
			p.echo()
			p.send(func(w *frameWriter) { w.reset(first[1], http2.ErrCodeCancel) })
			second := p.burst("d")
			if _, after := p.pings(); after != before+1 || time.Since(begun) > takes/5 {
				t.Fatalf("after %v, %d PINGs were answered; a slow store delays other calls", time.Since(begun), after-before)
			}
			p.mustAnswer(first[0], "a")
			p.mustAnswer(first[2], "c")
			if took := time.Since(begun); took != takes {
				t.Errorf("the burst took %v", took)
			}
			p.mustAnswer(second[0], "d")
			if a := p.answerSoFar(first[1]); a.over() {
				t.Errorf("a call that was reset is answered %v", a)
			}
			p.echo()
		}
		s.flusher.takes.Store(0)
		p.mustAnswer(p.burst("quick")[0], "quick")
	})
}

// TestBurstForTwoStores has calls of one write pause for two stores. The one that is far away does not
// delay the answers of the other.
func TestBurstForTwoStores(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		s.far.takes.Store(int64(time.Second))
		for _, messages := range [][]string{{"far", "near", "far too", "near twice"}, {"near", "far", "near too"}} {
			begun := time.Now()
			ids := p.burst(messages...)
			for _, far := range []bool{false, true} {
				for i, m := range messages {
					if strings.Contains(m, "far") == far {
						p.mustAnswer(ids[i], m)
					}
				}
				if took := time.Since(begun); took >= time.Second != far {
					t.Errorf("%v, far away: %v: the answers took %v", messages, far, took)
				}
			}
		}
		if n := s.far.flushes.Load(); n != 2 {
			t.Errorf("%d flushes for two bursts, want one for each", n)
		}
		p.burst("far", "near", "far")
		s.Stop()
	})
}

// TestManyPause has more calls paused than the server keeps coroutines for.
func TestManyPause(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		s.flusher.takes.Store(int64(time.Second))
		var ids []uint32
		for range 40 {
			ids = append(ids, p.burst("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")...)
		}
		for i, id := range ids {
			p.mustAnswer(id, string(rune('0'+i%10)))
		}
	})
}

// TestBurstBeforeAPart sends a call, and then only the beginning of a header block.
func TestBurstBeforeAPart(t *testing.T) {
	for name, part := range map[string]func(*frameWriter, uint32){
		"a header block without its end": func(w *frameWriter, id uint32) { w.raw(http2.FrameHeaders, 0, id, w.fields(request("Echo"))) },
		"a part of a frame":              func(w *frameWriter, _ uint32) { w.WriteString("\x00\x00\x08\x06") },
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
				p := s.connectAs(t, onlyReading)
				p.send(func(w *frameWriter) {
					w.call(1, "Pause", value("whole"))
					part(w, 3)
				})
				p.mustAnswer(1, "whole")
			})
		})
	}
}

// TestPauseThenWait has a call that must wait after it has paused.
func TestPauseThenWait(t *testing.T) {
	withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
		p := s.connect(t)
		ids := p.burst("then wait", "not", "then wait")
		p.mustAnswer(ids[1], "not")
		p.send(func(w *frameWriter) { w.reset(ids[2], http2.ErrCodeCancel) })
		p.echo()
		synctest.Wait()
		if n := s.running.Load(); n != 1 {
			t.Errorf("%d handlers wait, want 1: the other call was reset", n)
		}
		s.openGate()
		p.mustAnswer(ids[0], "then wait")
	})
}

// TestPausePanics has a bug end the connection. The other calls of the burst are given up.
func TestPausePanics(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second} {
		withServer(t, unary.Options{}, func(t *testing.T, s *testServer, l *meters) {
			p := s.connect(t)
			s.flusher.takes.Store(int64(takes))
			p.burst("before", "then panic", "after", "after")
			p.waitClosed()
			synctest.Wait()
			if got := s.flusher.ended.Load(); got != 2 || l.goAways()["bug"] != 1 {
				t.Errorf("%d calls were given up, want 2; %v", got, l.goAways())
			}
			s.flusher.takes.Store(0)
			p = s.connect(t)
			p.mustAnswer(p.burst("still")[0], "still")
		})
	}
}

// TestEndWhilePaused ends connection and server while calls pause. Stop returns after their handlers.
func TestEndWhilePaused(t *testing.T) {
	for name, end := range map[string]func(*testServer, *testClient){
		"the client":    func(_ *testServer, p *testClient) { p.close() },
		"a broken rule": func(_ *testServer, p *testClient) { p.send(func(w *frameWriter) { w.data(99, true, nil) }) },
		"stop":          func(s *testServer, _ *testClient) { s.Stop() },
		"graceful stop": func(s *testServer, _ *testClient) { s.GracefulStop() },
	} {
		for _, handed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				withServer(t, unary.Options{}, func(t *testing.T, s *testServer, _ *meters) {
					p := s.connect(t)
					s.flusher.takes.Store(int64(time.Second))
					begun := time.Now()
					ids := p.burst("a", "b")
					if handed {
						p.echo()
					}
					end(s, p)
					s.Stop()
					if took := time.Since(begun); took < time.Second {
						t.Errorf("Stop returned after %v, while handlers ran", took)
					}
					if name == "graceful stop" {
						p.mustAnswer(ids[0], "a")
						p.mustAnswer(ids[1], "b")
					}
				})
			})
		}
	}
}
