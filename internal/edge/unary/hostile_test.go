package unary_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// The bounds for frames that are not calls, from the manual.
const (
	burst     = 10_000 // frames that cost one token each
	resetCost = 10     // tokens for a fault for which the server resets a stream
)

// An attackTest is a server in a bubble of synctest, with an attacker and with a neighbour
// that must be served all the time. Time passes only by Sleep.
type attackTest struct {
	*testServer
	meters    *meters
	neighbour *testClient // must be served all the time
	attacker  *testClient
	end       *serverConn // the server's end of the attacker's connection
}

// withAttacker runs f in a bubble. The attacker is connected and has sent nothing.
func withAttacker(t *testing.T, o unary.Options, m behavior, f func(t *testing.T, s *attackTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &attackTest{meters: newCountingMeters()}
		o.Meters = s.meters
		s.testServer = startServer(t, ours, o, pipes())
		s.neighbour = s.connect(t)
		s.neighbour.echo()
		s.attacker = newClient(t, s.l.dial(t), m)
		synctest.Wait()
		s.end = s.l.conns()[1]
		f(t, s)
		s.neighbour.echo()
		s.neighbour.checkFaults()
		s.attacker.checkFaults()
		s.attacker.close()
		s.neighbour.close()
		synctest.Wait()
	})
}

// flood makes the attacker send frames until it gets a GOAWAY, at most most of them. After
// each batch of at frames the neighbour must be served. flood returns how many were sent.
func (s *attackTest) flood(most, at int, frames func(w *frameWriter, i int)) int {
	for n := 0; n < most; {
		if s.attacker.tryToSend(func(w *frameWriter) {
			for range at {
				frames(w, n)
				n++
			}
		}) != nil {
			return n
		}
		synctest.Wait()
		s.neighbour.mustEcho("Ready")
		if len(s.attacker.goAways()) > 0 {
			return n
		}
	}
	return most
}

// begin opens n calls whose requests do not end.
func (s *attackTest) begin(t *testing.T, n int, method string) {
	t.Helper()
	s.attacker.send(func(w *frameWriter) {
		for range n {
			w.headers(s.attacker.next, false, request(method))
			s.attacker.next += 2
		}
	})
}

// TestFloods sends frames that make the server work and are not calls. The server takes
// only as many as its budget allows.
func TestFloods(t *testing.T) {
	stream := func(w *frameWriter, i int, f func(id uint32)) { // each on a stream of its own
		id := uint32(2*i + 101)
		w.headers(id, false, request("Echo"))
		f(id)
	}
	for _, tt := range []struct {
		name  string
		cost  int // tokens for each frame
		frame func(w *frameWriter, i int)
	}{
		{"PING answers", 1, func(w *frameWriter, _ int) { must(w.fr.WritePing(true, [8]byte{})) }},
		{"SETTINGS, empty", 1, func(w *frameWriter, _ int) { w.settings() }},
		{"SETTINGS, of one", 2, func(w *frameWriter, i int) {
			w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 1000)})
		}},
		{"SETTINGS, unknown", 2, func(w *frameWriter, i int) { w.settings(http2.Setting{ID: 0x77, Val: uint32(i)}) }},
		{"SETTINGS acknowledged that were not sent", 1, func(w *frameWriter, _ int) { must(w.fr.WriteSettingsAck()) }},
		{"PRIORITY", 1, func(w *frameWriter, i int) { must(w.fr.WritePriority(uint32(i*2+1), http2.PriorityParam{})) }},
		{"PRIORITY on itself", resetCost, func(w *frameWriter, _ int) { must(w.fr.WritePriority(1, http2.PriorityParam{StreamDep: 1})) }},
		{"WINDOW_UPDATE of the connection", 1, func(w *frameWriter, _ int) { w.update(0, 1) }},
		{"WINDOW_UPDATE of a stream", 1, func(w *frameWriter, _ int) { w.update(1, 1) }},
		{"WINDOW_UPDATE of a stream that is gone", 1, func(w *frameWriter, _ int) { w.update(99, 1) }},
		{"RST_STREAM of a stream that is gone", 1, func(w *frameWriter, _ int) { w.reset(99, http2.ErrCodeCancel) }},
		{"GOAWAY", 1, func(w *frameWriter, _ int) { must(w.fr.WriteGoAway(0, http2.ErrCodeNo, nil)) }},
		{"unknown frames", 1, func(w *frameWriter, _ int) { w.raw(0x42, 0, 0, []byte("nothing")) }},
		{"DATA, empty", 1, func(w *frameWriter, _ int) { w.data(1, false, nil) }},
		{"DATA, padding alone", 1, func(w *frameWriter, _ int) { must(w.fr.WriteDataPadded(1, false, nil, make([]byte, 5))) }},
		{"DATA, one byte", 1, func(w *frameWriter, i int) { w.data(uint32(i%20*2+1), false, []byte{0}) }},
		{"DATA for a stream that is gone", 2, func(w *frameWriter, _ int) { w.data(99, false, nil) }},
		{"DATA after the end", resetCost, func(w *frameWriter, i int) {
			stream(w, i, func(id uint32) { w.data(id, true, framed(0, nil)); w.data(id, true, nil) })
		}},

		// Calls that the client resets: each costs a frame.
		{"rapid reset", 1, func(w *frameWriter, i int) { stream(w, i, func(id uint32) { w.reset(id, http2.ErrCodeCancel) }) }},
		{"rapid reset of whole calls", 1, func(w *frameWriter, i int) {
			w.call(uint32(2*i+101), "Gate", nil)
			w.reset(uint32(2*i+101), http2.ErrCodeCancel)
		}},

		// "Made you reset": calls that the server must reset cost more.
		{"no window update", resetCost, func(w *frameWriter, i int) { stream(w, i, func(id uint32) { w.update(id, 0) }) }},
		{"a window that is too large", resetCost, func(w *frameWriter, i int) { stream(w, i, func(id uint32) { w.update(id, 1<<31-1) }) }},
		{"priority on itself", resetCost, func(w *frameWriter, i int) {
			stream(w, i, func(id uint32) { must(w.fr.WritePriority(id, http2.PriorityParam{StreamDep: id})) })
		}},
		{"DATA beyond content-length", resetCost, func(w *frameWriter, i int) {
			id := uint32(2*i + 101)
			w.headers(id, false, request("Echo", "content-length: 1"))
			w.data(id, true, framed(0, nil))
		}},
		{"trailers that do not end", resetCost, func(w *frameWriter, i int) {
			stream(w, i, func(id uint32) { w.headers(id, false, []hpack.HeaderField{{Name: "x", Value: "y"}}) })
		}},
		{"malformed headers", resetCost, func(w *frameWriter, i int) { w.headers(uint32(2*i+101), true, request("Echo", "Upper: x")) }},
		{"headers that depend on themselves", resetCost, func(w *frameWriter, i int) {
			id := uint32(2*i + 101)
			must(w.fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: w.fields(request("Echo")), Priority: http2.PriorityParam{StreamDep: id, Weight: 1},
			}))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
				s.attacker.send(func(w *frameWriter) { w.preface() })
				s.begin(t, 20, "Gate") // 1 to 39
				// One that the client has reset.
				s.attacker.send(func(w *frameWriter) { w.headers(99, false, request("Echo")); w.reset(99, http2.ErrCodeCancel) })
				const at = 50
				n := s.flood(2*burst, at, tt.frame)
				if most := burst/tt.cost + at; n > most || n < most/2 {
					t.Errorf("the server has taken %d, want about %d", n, most)
				}
				if g := s.attacker.goAway(); g.code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("GOAWAY with %v %q", g.code, g.debug)
				}
				if running := s.running.Load(); running > 0 {
					t.Errorf("%d calls are still running", running)
				}
				time.Sleep(5 * time.Second) // the server still reads for a second
				s.attacker.waitClosed()
				if got := s.meters.goAways(); got["flood"] != 1 || len(got) != 1 {
					t.Errorf("counted %v", got)
				}
			})
		})
	}
}

// TestFramesThatArePaidFor checks that a client that calls may send other frames too, and
// so may a client that sends them slowly.
func TestFramesThatArePaidFor(t *testing.T) {
	for _, method := range []string{"Echo", "Ready"} {
		t.Run(method, func(t *testing.T) {
			withAttacker(t, unary.Options{}, acknowledging, func(_ *testing.T, s *attackTest) {
				p := s.attacker
				p.send(func(w *frameWriter) { w.preface() })
				for range 300 {
					var first uint32
					p.send(func(w *frameWriter) {
						first = p.next
						for range 20 {
							w.call(p.next, method, value("hello"))
							w.update(0, 5)
							w.update(p.next, 5)
							p.next += 2
						}
					})
					p.answer(first + 38)
				}
				for range 60 { // below the 2,000 tokens a second
					time.Sleep(time.Second)
					p.send(func(w *frameWriter) {
						for range 1500 {
							must(w.fr.WritePriority(1, http2.PriorityParam{}))
						}
					})
				}
				p.echo()
			})
		})
	}
}

// TestPings checks how often a client may send PINGs.
func TestPings(t *testing.T) {
	ping := func(w *frameWriter) { must(w.fr.WritePing(false, [8]byte{})) }
	t.Run("too many", func(t *testing.T) {
		withAttacker(t, unary.Options{Lifetime: unary.Lifetime{MinPingInterval: time.Minute}}, onlyReading, func(t *testing.T, s *attackTest) {
			s.attacker.send(func(w *frameWriter) { w.preface() })
			time.Sleep(time.Second)
			n := s.flood(100, 1, func(w *frameWriter, _ int) { ping(w) })
			if g := s.attacker.goAway(); g.code != http2.ErrCodeEnhanceYourCalm || g.debug != "too_many_pings" || n > 5 {
				t.Errorf("after %d PINGs: %v", n, g)
			}
			time.Sleep(5 * time.Second)
			s.attacker.waitClosed()
			if got := s.meters.goAways(); got["pings"] != 1 {
				t.Errorf("counted %v", got)
			}
		})
	})
	t.Run("as many as may be", func(t *testing.T) {
		withAttacker(t, unary.Options{Lifetime: unary.Lifetime{MinPingInterval: time.Minute}}, onlyReading, func(t *testing.T, s *attackTest) {
			s.attacker.send(func(w *frameWriter) { w.preface() })
			for range 30 {
				s.attacker.send(ping)
				time.Sleep(time.Minute)
			}
			s.attacker.echo()
			if _, n := s.attacker.pings(); n != 30 {
				t.Errorf("%d PINGs of 30 were answered", n)
			}
		})
	})
	t.Run("between calls", func(t *testing.T) {
		withAttacker(t, unary.Options{Lifetime: unary.Lifetime{MinPingInterval: time.Minute}}, onlyReading, func(_ *testing.T, s *attackTest) {
			s.attacker.send(func(w *frameWriter) { w.preface() })
			for range 30 {
				s.attacker.send(ping)
				s.attacker.echo()
			}
		})
	})
}

// TestSettingsFrame sends thousands of settings in one frame. Each one would change every
// stream.
func TestSettingsFrame(t *testing.T) {
	withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
		s.attacker.send(func(w *frameWriter) { w.preface() })
		s.begin(t, 2000, "Gate")
		all := make([]http2.Setting, 2730)
		for i := range all {
			all[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		n := s.flood(100, 1, func(w *frameWriter, _ int) { w.settings(all...) })
		if g := s.attacker.goAway(); g.code != http2.ErrCodeEnhanceYourCalm || n > 1 {
			t.Errorf("after %d frames: %v", n, g)
		}
	})
}

// TestRunning starts and resets calls whose handlers do not end. There are never more
// handlers than MaxStreams, however the streams end.
func TestRunning(t *testing.T) {
	const most = 16
	for _, tt := range []struct {
		name string
		end  func(w *frameWriter, id uint32)
	}{
		{"left open", func(*frameWriter, uint32) {}},
		{"reset by the client", func(w *frameWriter, id uint32) { w.reset(id, http2.ErrCodeCancel) }},
		{"reset for a window update of nothing", func(w *frameWriter, id uint32) { w.update(id, 0) }},
		{"reset for a window too large", func(w *frameWriter, id uint32) { w.update(id, 1<<31-1) }},
		{"reset for DATA behind the end", func(w *frameWriter, id uint32) { w.data(id, true, []byte("more")) }},
		{"reset for trailers behind the end", func(w *frameWriter, id uint32) { w.headers(id, true, []hpack.HeaderField{{Name: "x", Value: "y"}}) }},
	} {
		for _, method := range []string{"Stay", "Stop"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				withAttacker(t, unary.Options{MaxStreams: most}, onlyReading, func(t *testing.T, s *attackTest) {
					s.attacker.send(func(w *frameWriter) { w.preface() })
					s.flood(10*most, 1, func(w *frameWriter, i int) {
						id := uint32(2*i + 1)
						w.call(id, method, nil)
						tt.end(w, id)
					})
					if got := s.most.Load(); got != most {
						t.Errorf("%d handlers ran at once, want %d", got, most)
					}
					if s.meters.reset(http2.ErrCodeRefusedStream) == 0 {
						t.Errorf("no call was refused")
					}
					// When they end, the server serves calls again.
					s.openGate()
					synctest.Wait()
					if s.attacker.alive() {
						s.attacker.next = 2*10*most + 1
						s.attacker.echo()
					}
				})
			})
		}
	}
}

// TestRunningOfHalfRequests opens calls whose requests are not whole, while handlers of
// reset calls still run. The bound holds for both together.
func TestRunningOfHalfRequests(t *testing.T) {
	const most = 16
	withAttacker(t, unary.Options{MaxStreams: most}, onlyReading, func(t *testing.T, s *attackTest) {
		p := s.attacker
		p.send(func(w *frameWriter) { w.preface() })
		for _, n := range []int{most - 1, most} {
			first := p.next
			s.begin(t, n, "Stay")
			p.send(func(w *frameWriter) {
				for id := first; id < p.next; id += 2 {
					w.data(id, true, framed(0, nil))
				}
			})
			synctest.Wait()
			p.send(func(w *frameWriter) {
				for id := first; id < p.next; id += 2 {
					w.reset(id, http2.ErrCodeCancel)
				}
			})
			synctest.Wait()
		}
		if got := s.most.Load(); got != most {
			t.Errorf("%d handlers ran at once, want %d", got, most)
		}
		s.openGate()
		synctest.Wait()
		p.echo()
	})
}

// TestCanceled checks that the context of a call ends when its client gives it up.
func TestCanceled(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *testClient)
	}{
		{"by a reset", func(p *testClient) { p.send(func(w *frameWriter) { w.reset(1, http2.ErrCodeCancel) }) }},
		{"by a mistake", func(p *testClient) { p.send(func(w *frameWriter) { w.update(1, 0) }) }},
		{"by a mistake that ends the connection", func(p *testClient) { p.send(func(w *frameWriter) { w.data(0, false, nil) }) }},
		{"by hanging up", func(p *testClient) { p.close() }},
	} {
		for _, method := range []string{"Wait", "Slow"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
					s.attacker.send(func(w *frameWriter) { w.preface() })
					s.attacker.start(method, nil)
					synctest.Wait()
					if n := s.running.Load(); n != 1 {
						t.Fatalf("%d handlers run", n)
					}
					tt.end(s.attacker)
					synctest.Wait()
					if n := s.running.Load(); n != 0 {
						t.Errorf("%d handlers run still", n)
					}
				})
			})
		}
	}
}

// TestContinuation sends header blocks that do not end.
func TestContinuation(t *testing.T) {
	const most = 8 << 10
	block := newFrameWriter().fields([]hpack.HeaderField{{Name: "x-some-name", Value: strings.Repeat("v", 1000)}})
	for _, tt := range []struct {
		name  string
		block []byte
		bytes int64 // how much the server may read
		code  http2.ErrCode
	}{
		{"empty", nil, 9*burst + 9000, http2.ErrCodeEnhanceYourCalm},
		{"one byte of a number each", []byte{0x80}, 10*burst + 9000, http2.ErrCodeEnhanceYourCalm},
		{"with fields", block, 2*most + 4<<10 + 16<<10, http2.ErrCodeEnhanceYourCalm},
		{"with references", bytes.Repeat([]byte{0x82}, 1000), 2*most + 4<<10 + 16<<10, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxHeaderBytes: most}, onlyReading, func(t *testing.T, s *attackTest) {
				s.attacker.send(func(w *frameWriter) {
					w.preface()
					must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields(request("Echo"))}))
				})
				s.flood(2*burst, 1, func(w *frameWriter, _ int) { must(w.fr.WriteContinuation(1, false, tt.block)) })
				if g := s.attacker.goAway(); g.code != tt.code {
					t.Errorf("GOAWAY %v %q", g.code, g.debug)
				}
				if n := s.end.read.Load(); n > tt.bytes {
					t.Errorf("the server has read %d bytes, want at most %d", n, tt.bytes)
				}
			})
		})
	}
}

// TestHeaderBombs sends small header blocks that decode to large lists.
func TestHeaderBombs(t *testing.T) {
	const most = 64 << 10
	big := []hpack.HeaderField{{Name: "x-big", Value: strings.Repeat("v", 4000)}}
	for _, tt := range []struct {
		name  string
		block func(w *frameWriter) []byte
		code  http2.ErrCode // of the GOAWAY; zero: only the calls are refused
		want  string        // the status of refused calls
	}{
		{"references", func(w *frameWriter) []byte {
			return append(bytes.Clone(w.fields(append(request("Echo"), big...))), bytes.Repeat([]byte{0x80 | 62}, 12<<10)...)
		}, 0, "8"},
		{"a literal said to be huge", func(w *frameWriter) []byte {
			return append(bytes.Clone(w.fields(request("Echo"))), 0x00, 0x01, 'x', 0x7f, 0xff, 0xff, 0xff, 0x7f)
		}, http2.ErrCodeCompression, ""},
		{"a number without end", func(w *frameWriter) []byte {
			return append(append(bytes.Clone(w.fields(request("Echo"))), 0x00, 0x01, 'x', 0x7f), bytes.Repeat([]byte{0xff}, 1000)...)
		}, http2.ErrCodeCompression, ""},
		{"the table resized again and again", func(w *frameWriter) []byte {
			return append(bytes.Repeat([]byte{0x20, 0x3f, 0xe1, 0x1f}, 3000), w.fields(request("Echo"))...)
		}, 0, "12"},
		{"a table larger than allowed", func(w *frameWriter) []byte {
			return append([]byte{0x3f, 0xe2, 0x1f}, w.fields(request("Echo"))...)
		}, http2.ErrCodeCompression, ""},
		{"references to nothing", func(*frameWriter) []byte { return bytes.Repeat([]byte{0x80 | 120}, 100) }, http2.ErrCodeCompression, ""},
		{"many fields", func(w *frameWriter) []byte {
			return append(bytes.Clone(w.fields(request("Echo"))), bytes.Repeat([]byte{0x90}, 14<<10)...) // accept-encoding
		}, 0, "8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxHeaderBytes: most}, onlyReading, func(t *testing.T, s *attackTest) {
				s.attacker.send(func(w *frameWriter) { w.preface() })
				before, calls := allocated(), 100
				for i := range calls {
					err := s.attacker.tryToSend(func(w *frameWriter) {
						// It refers only to fields of its own block, which the server has in its table.
						w.enc = hpack.NewEncoder(&w.block)
						b := tt.block(w)
						param := http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndStream: true, EndHeaders: true, BlockFragment: b}
						must(w.fr.WriteHeaders(param))
					})
					if err != nil {
						break
					}
				}
				synctest.Wait()
				if tt.code != 0 {
					if g := s.attacker.goAway(); g.code != tt.code {
						t.Errorf("GOAWAY %v %q", g.code, g.debug)
					}
				} else if a := s.attacker.answer(uint32(2*calls - 1)); a.last("grpc-status") != tt.want {
					t.Errorf("answered %v", a)
				}
				// These are 100 blocks of 16 KiB. Each would decode to 50 MB.
				if grown := allocated() - before; grown > 64<<20 {
					t.Errorf("%d MB were allocated", grown>>20)
				}
			})
		})
	}
}

// TestLongHeaders checks that a header list that is too long fails only its own call.
func TestLongHeaders(t *testing.T) {
	for _, tt := range []struct {
		name string
		more []string
	}{
		{"one field", []string{"x: " + strings.Repeat("x", 9000)}},
		{"many fields", strings.Split(strings.Repeat("x: y,", 300)[:1499], ",")},
		{"a long path", []string{":path: /" + strings.Repeat("x", 9000)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxHeaderBytes: 8 << 10}, acknowledging, func(t *testing.T, s *attackTest) {
				s.attacker.send(func(w *frameWriter) { w.preface() })
				if a := s.attacker.call("Echo", nil, tt.more...); a.last("grpc-status") != "8" {
					t.Errorf("answered %v", a)
				}
				s.attacker.echo()
			})
		})
	}
}

// allocated returns how many bytes were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// inUse returns how many bytes of memory are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // pools release their memory at the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestOpening connects clients that are too slow to open their connection.
func TestOpening(t *testing.T) {
	const timeout = 10 * time.Second
	preface := func() []byte {
		w := newFrameWriter()
		w.preface()
		return w.Bytes()
	}()
	hello := []byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}
	for _, tt := range []struct {
		name  string
		tls   bool
		bytes []byte
	}{
		{"nothing", false, nil},
		{"a preface, slowly", false, preface},
		{"no settings", false, []byte(http2.ClientPreface)},
		{"half a settings frame", false, preface[:len(preface)-2]},
		{"no TLS", true, nil},
		{"TLS, slowly", true, hello},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := unary.Options{Lifetime: unary.Lifetime{OpenTimeout: timeout}}
			if tt.tls {
				o.TLS = certificate(t)
			}
			synctest.Test(t, func(t *testing.T) {
				meters := newCountingMeters()
				o.Meters = meters
				s := startServer(t, ours, o, pipes())
				p := newClient(t, s.l.dial(t), onlyReading)
				begun := time.Now()
				for _, b := range tt.bytes {
					if p.tryToSend(func(w *frameWriter) { w.WriteByte(b) }) != nil {
						break
					}
					if len(tt.bytes) != len(http2.ClientPreface) {
						time.Sleep(timeout / 15)
					}
				}
				p.waitClosed()
				if took := time.Since(begun); took < timeout || took > timeout+timeout/4 {
					t.Errorf("it took %v until the connection was closed, want %v", took, timeout)
				}
				if got := meters.goAways(); got["timeout"] != 1 {
					t.Errorf("counted %v", got)
				}
				p.close()
				synctest.Wait()
			})
		})
	}
}

// TestClientThatDoesNotRead checks that the server stops reading calls once too much waits
// to be sent, and closes the connection in the end.
func TestClientThatDoesNotRead(t *testing.T) {
	const timeout = 20 * time.Second
	for _, method := range []string{"Bulk", "Large"} {
		t.Run(method, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxStreams: 64, Lifetime: unary.Lifetime{WriteTimeout: timeout}}, notReading, func(t *testing.T, s *attackTest) {
				const size = 60_000
				p := s.attacker
				before := inUse()
				var calls atomic.Int64
				// A handler's goroutine writes the first answer, so that the reading goroutine can
				// go on.
				done := make(chan error, 1)
				go func() {
					done <- p.tryToSend(func(w *frameWriter) {
						w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
						w.update(0, 1<<31-1-65535)
						w.call(1, "Gate", nil)
					})
				}()
				for fr := http2.NewFramer(nil, p.conn); ; {
					f, err := fr.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if f, ok := f.(*http2.SettingsFrame); ok && f.IsAck() {
						break
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				s.openGate()
				synctest.Wait()
				go func() {
					var err error
					for p.next = 3; err == nil && p.next < 1<<16; p.next += 2 {
						err = p.tryToSend(func(w *frameWriter) { w.call(p.next, method, value(strconv.Itoa(size))) })
						calls.Add(1)
					}
					done <- err
				}()
				synctest.Wait()
				s.neighbour.echo()
				if grown := inUse() - before; grown > 16<<20 {
					t.Errorf("%d calls of a client that does not read have taken %d MB", calls.Load(), grown>>20)
				}
				select {
				case err := <-done:
					// While a handler's goroutine writes, the server reads on. It refuses calls above
					// MaxStreams until they are a flood.
					if got := s.meters.goAways(); got["flood"] != 1 || len(got) != 1 {
						t.Fatalf("the server has closed the connection early: %v, %v", err, got)
					}
					return
				default:
				}
				if n := calls.Load(); n > 1000 {
					t.Errorf("%d calls were read though no answer was", n)
				}
				time.Sleep(timeout + timeout/4)
				if err := <-done; err == nil {
					t.Errorf("the server has not closed the connection")
				}
				if got := s.meters.goAways(); got["slow"] != 1 {
					t.Errorf("counted %v", got)
				}
			})
		})
	}
}

// TestWaitingAnswersAreBounded has clients that leave the server no windows. The answers that wait
// have a bound for all connections together. Beyond it the connection that holds the most ends, and
// gives its memory back.
func TestWaitingAnswersAreBounded(t *testing.T) {
	withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
		const size = 60_000
		modest := newClient(t, s.l.dial(t), onlyReading)
		defer modest.close()
		noWindow := func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) }
		modest.send(noWindow)
		first := modest.start("Bulk", value(strconv.Itoa(size)))
		before := memoryInUse()
		s.attacker.send(noWindow)
		const most = 2 * unary.MaxWaiting / size
		if n := s.flood(most, 16, func(w *frameWriter, i int) { w.call(uint32(2*i+1), "Bulk", value(strconv.Itoa(size))) }); n == most {
			t.Fatalf("%d answers of %d bytes wait", n, size)
		}
		if g := s.attacker.goAway(); g.code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("GOAWAY %v, want ENHANCE_YOUR_CALM", g.code)
		}
		synctest.Wait()
		if grown := int64(memoryInUse()) - int64(before); grown > unary.MaxWaiting/4 {
			t.Errorf("%d bytes are still in use", grown)
		}
		// The other client has its answer once there is a window.
		modest.send(func(w *frameWriter) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * size}) })
		if a := modest.answer(first); a.last("grpc-status") != "0" || len(a.data) != size+9 {
			t.Errorf("the other client: %d bytes, %v", len(a.data), a.last("grpc-status"))
		}
		time.Sleep(2 * time.Second) // the attacker has not gone
		if got := s.meters.goAways(); got["slow"] != 1 {
			t.Errorf("counted %v, want one connection that was slow", got)
		}
	})
}

// memoryInUse returns how many bytes of the heap are in use after a collection.
func memoryInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestWindows has clients that give the server small windows.
func TestWindows(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		withAttacker(t, unary.Options{MaxStreams: 32}, onlyReading, func(t *testing.T, s *attackTest) {
			p := s.attacker
			p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) })
			for range 100 {
				p.start("Bulk", value("1000"))
			}
			synctest.Wait()
			if n := s.meters.reset(http2.ErrCodeRefusedStream); n != 100-32 {
				t.Errorf("%d calls were refused, want %d", n, 100-32)
			}
			// When windows open, the calls that were not refused are answered.
			p.send(func(w *frameWriter) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5000}) })
			for id := uint32(1); id < 64; id += 2 {
				if a := p.answer(id); a.last("grpc-status") != "0" || len(a.data) != 1008 {
					t.Errorf("stream %d: %v", id, a)
				}
			}
		})
	})
	t.Run("a byte at a time", func(t *testing.T) {
		withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
			p := s.attacker
			p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}) })
			id := p.start("Bulk", value("60000"))
			s.flood(2*burst, 50, func(w *frameWriter, _ int) { w.update(id, 1) })
			if g := p.goAway(); g.code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("GOAWAY %v", g)
			}
			if n := p.answerSoFar(id).frames; n > burst+100 {
				t.Errorf("the answer has come in %d frames", n)
			}
		})
	})
	t.Run("of the connection", func(t *testing.T) {
		withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
			p := s.attacker
			p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) })
			first, second := p.start("Bulk", value("60000")), p.start("Large", value("60000"))
			synctest.Wait()
			sent := func() int { return len(p.answerSoFar(first).data) + len(p.answerSoFar(second).data) }
			if n := sent(); n != 65535 {
				t.Errorf("%d bytes were sent on a window of 65535", n)
			}
			p.send(func(w *frameWriter) { w.update(0, 1000) })
			synctest.Wait()
			if n := sent(); n != 66535 {
				t.Errorf("%d bytes were sent on a window of 66535", n)
			}
			p.send(func(w *frameWriter) { w.update(0, 1<<20) })
			if a, b := p.answer(first), p.answer(second); len(a.data) != 60009 || len(b.data) != 60009 {
				t.Errorf("answered %v and %v", a, b)
			}
		})
	})
	t.Run("negative", func(t *testing.T) {
		withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
			p := s.attacker
			p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}) })
			id := p.start("Bulk", value("1000"))
			synctest.Wait()
			// The 100 bytes that were sent count against the new window.
			p.send(func(w *frameWriter) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 40}) })
			p.send(func(w *frameWriter) { w.update(id, 60) })
			synctest.Wait()
			if n := len(p.answerSoFar(id).data); n != 100 {
				t.Errorf("%d bytes were sent on a window of 100", n)
			}
			p.send(func(w *frameWriter) { w.update(id, 1) })
			synctest.Wait()
			if n := len(p.answerSoFar(id).data); n != 101 {
				t.Errorf("%d bytes were sent on a window of 101", n)
			}
			p.send(func(w *frameWriter) { w.update(id, 5000) })
			if a := p.answer(id); len(a.data) != 1008 {
				t.Errorf("answered %v", a)
			}
		})
	})
}

// TestHalfMessages sends many messages that are not whole.
func TestHalfMessages(t *testing.T) {
	const (
		streams = 2000
		message = 1 << 20
	)
	for _, tt := range []struct {
		name string
		size int // bytes sent of each message
		most int64
	}{
		{"said to be large", 0, 8 << 20},
		{"of a few kilobytes", 8 << 10, 16 << 20},
		{"as much as may be", 60 << 10, 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxMessageBytes: message}, onlyReading, func(t *testing.T, s *attackTest) {
				p := s.attacker
				p.send(func(w *frameWriter) { w.preface() })
				before := inUse()
				for id := uint32(1); id < 2*streams; id += 2 {
					err := p.tryToSend(func(w *frameWriter) {
						w.headers(id, false, request("Echo"))
						w.data(id, false, binary.BigEndian.AppendUint32([]byte{0}, message))
						for sent := 0; sent < tt.size; sent += 8 << 10 {
							w.data(id, false, make([]byte, 8<<10))
						}
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				s.neighbour.echo()
				if grown := inUse() - before; grown > tt.most {
					t.Errorf("%d half messages have taken %d MB", streams, grown>>20)
				}
			})
		})
	}
}

// TestOddMessages sends messages with wrong prefixes, and compressed ones.
func TestOddMessages(t *testing.T) {
	const most = 1 << 20
	for _, tt := range []struct {
		name string
		body []byte
		more []string
		code string
	}{
		{"longer than it says", append(framed(0, value("x")), make([]byte, 100)...), nil, "12"},
		{"shorter than it says", framed(0, make([]byte, 100))[:50], nil, "13"},
		{"larger than may be", binary.BigEndian.AppendUint32([]byte{0}, most+1), nil, "8"},
		{"as large as can be said", []byte{0, 0xff, 0xff, 0xff, 0xff}, nil, "8"},
		{"compressed", framed(1, value("x")), []string{"grpc-encoding: gzip"}, "12"},
		{"compressed by nothing", framed(1, value("x")), nil, "13"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{MaxMessageBytes: most}, acknowledging, func(t *testing.T, s *attackTest) {
				p := s.attacker
				p.send(func(w *frameWriter) { w.preface() })
				before := allocated()
				p.send(func(w *frameWriter) {
					w.headers(1, false, request("Echo", tt.more...))
					for b := tt.body; ; {
						n := min(len(b), 16<<10)
						w.data(1, n == len(b), b[:n])
						if b = b[n:]; len(b) == 0 {
							break
						}
						if w.Len() > 60<<10 {
							panic("this needs a window")
						}
					}
				})
				if a := p.answer(1); a.last("grpc-status") != tt.code {
					t.Errorf("answered %v", a)
				}
				if grown := allocated() - before; grown > 16*most {
					t.Errorf("%d MB were allocated", grown>>20)
				}
				p.next = 3
				p.echo()
			})
		})
	}
}

// TestPanics checks that a panic that a handler did not recover from ends its connection,
// and no other one. The log has its stack, but not its value.
func TestPanics(t *testing.T) {
	for name, panicsAt := range map[string]bool{"without waiting": false, "waiting": true} {
		t.Run(name, func(t *testing.T) {
			panicking := serverKind{"panicking", func(p *testService, o unary.Options) transport {
				s := newUnaryServer(p, o).(*unary.Server)
				s.Handle(servicePath+"Refuse", func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
					if wait == panicsAt {
						panic("as asked")
					}
					return answer, false, nil
				})
				return s
			}}
			synctest.Test(t, func(t *testing.T) {
				meters := newCountingMeters()
				core, logs := observer.New(zap.DebugLevel)
				s := startServer(t, panicking, unary.Options{Meters: meters, Log: zap.New(core)}, pipes())
				other, p := s.connect(t), s.connect(t)
				p.start("Refuse", value("x"))
				p.waitClosed()
				other.echo()
				if got := meters.goAways(); got["bug"] != 1 || len(got) != 1 {
					t.Errorf("counted %v", got)
				}
				for _, e := range logs.FilterLevelExact(zap.ErrorLevel).All() {
					if text := fmt.Sprint(e.ContextMap()); strings.Contains(text, "as asked") || !strings.Contains(text, "hostile_test.go") {
						t.Errorf("the log has the value of the panic, or not its stack: %s", text)
					}
				}
				if n := logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
					t.Errorf("%d errors were logged, want 1", n)
				}
				other.close()
			})
		})
	}
}

// TestAnswersOfNothing checks that a Handler without a valid answer fails only its call.
func TestAnswersOfNothing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler unary.Handler
	}{
		{"at once", func(context.Context, bool, *unary.Call, []byte) ([]byte, bool, error) { return nil, true, nil }},
		{"at once, too short", func(_ context.Context, _ bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			return answer[:4], true, nil
		}},
		{"later", func(_ context.Context, wait bool, _ *unary.Call, _ []byte) ([]byte, bool, error) {
			return nil, wait, nil
		}},
		{"later, too short", func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			return answer[:4], wait, nil
		}},
		{"never", func(_ context.Context, _ bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			return answer, false, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			silent := serverKind{"silent", func(p *testService, o unary.Options) transport {
				s := unary.NewServer(o)
				s.RegisterService(p.desc(), p)
				s.Handle(servicePath+"Ready", tt.handler)
				return s
			}}
			synctest.Test(t, func(t *testing.T) {
				meters := newCountingMeters()
				s := startServer(t, silent, unary.Options{Meters: meters}, pipes())
				p := s.connect(t)
				other := p.start("Gate", value("other"))
				for range 3 {
					if a := p.call("Ready", value("x")); a.last("grpc-status") != "13" {
						t.Errorf("answered %v", a)
					}
				}
				s.openGate()
				if a := p.answer(other); a.last("grpc-status") != "0" {
					t.Errorf("the other call was answered %v", a)
				}
				p.echo()
				if got := meters.goAways(); len(got) > 0 {
					t.Errorf("counted %v", got)
				}
				p.checkFaults()
				p.close()
			})
		})
	}
}

// TestBodiesAreReleased has many calls whose answers wait for a window. The memory of
// their large requests is released.
func TestBodiesAreReleased(t *testing.T) {
	const (
		calls = 40
		body  = 256 << 10
		chunk = 16 << 10
	)
	withAttacker(t, unary.Options{MaxMessageBytes: 2 * body}, onlyReading, func(t *testing.T, s *attackTest) {
		p := s.attacker
		p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) })
		s.begin(t, 100, "Ready") // so that the server does not go through the list of blocked streams
		// A BytesValue with an unknown field.
		message := value("1000")
		message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), make([]byte, body))
		whole := framed(0, message)
		before := inUse()
		first := p.next
		for range calls {
			p.send(func(w *frameWriter) { w.headers(p.next, false, request("Bulk")) })
			for b := whole; len(b) > 0; {
				n := min(chunk, len(b))
				p.send(func(w *frameWriter) { w.data(p.next, n == len(b), b[:n]) })
				b = b[n:]
				synctest.Wait() // until the server has given windows back
			}
			if a := p.answerSoFar(p.next); len(a.headers) != 1 || a.over() {
				t.Fatalf("answered %v, want it to wait", a)
			}
			p.next += 2
		}
		if grown := inUse() - before; grown > calls*body/4 {
			t.Errorf("%d answers that wait have taken %d kB", calls, grown>>10)
		}
		p.send(func(w *frameWriter) {
			for id := first; id < p.next; id += 2 {
				w.reset(id, http2.ErrCodeCancel)
			}
		})
		synctest.Wait()
		if grown := inUse() - before; grown > calls*body/4 {
			t.Errorf("%d calls that are gone have left %d kB", calls, grown>>10)
		}
	})
}

// TestGivenUpBodies checks that the bytes of reset calls do not count against later calls.
func TestGivenUpBodies(t *testing.T) {
	const message = 1 << 20
	withAttacker(t, unary.Options{MaxMessageBytes: message}, onlyReading, func(t *testing.T, s *attackTest) {
		p := s.attacker
		p.send(func(w *frameWriter) { w.preface() })
		for range 100 {
			p.send(func(w *frameWriter) {
				w.headers(p.next, false, request("Echo"))
				w.data(p.next, false, binary.BigEndian.AppendUint32([]byte{0}, message))
				for range 3 {
					w.data(p.next, false, make([]byte, 16<<10))
				}
				w.reset(p.next, http2.ErrCodeCancel)
			})
			p.next += 2
			synctest.Wait()
		}
		p.send(func(w *frameWriter) {
			w.headers(p.next, false, request("Echo"))
			b := framed(0, value(strings.Repeat("x", 40<<10)))
			w.data(p.next, false, b[:16<<10])
			w.data(p.next, false, b[16<<10:32<<10])
			w.data(p.next, true, b[32<<10:])
		})
		if a := p.answer(p.next); a.last("grpc-status") != "0" {
			t.Errorf("answered %v", a)
		}
	})
}

// TestOpenHeaders opens many calls with long header lists, which are a few kilobytes when
// encoded.
func TestOpenHeaders(t *testing.T) {
	const (
		calls  = 500
		fields = 1900
	)
	withAttacker(t, unary.Options{MaxMessageBytes: 64 << 10}, onlyReading, func(t *testing.T, s *attackTest) {
		p := s.attacker
		p.send(func(w *frameWriter) { w.preface() })
		list := slices.Concat(request("Wait"), slices.Repeat([]hpack.HeaderField{{Name: "x"}}, fields))
		before := inUse()
		p.send(func(w *frameWriter) {
			w.headers(p.next, false, list)
			block := slices.Clone(w.fields(list)) // refers to the table only
			for range calls {
				p.next += 2
				must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: p.next, BlockFragment: block, EndHeaders: true}))
			}
		})
		synctest.Wait()
		if grown := inUse() - before; grown > 8<<20 {
			t.Errorf("the header lists of %d calls have taken %d kB", calls, grown>>10)
		}
		if a := p.answer(p.next); a.last("grpc-status") != "8" {
			t.Errorf("answered %v", a)
		}
		// When the open calls are reset, there is room for new ones.
		p.send(func(w *frameWriter) {
			for id := uint32(1); id < p.next; id += 2 {
				w.reset(id, http2.ErrCodeCancel)
			}
		})
		p.next += 2
		p.echo()
	})
}

// TestWindowsPayForThemselves has thousands of answers that wait for windows. The server
// goes through all of them when a window opens.
func TestWindowsPayForThemselves(t *testing.T) {
	const calls = 4000
	t.Run("a client that takes what it can", func(t *testing.T) {
		withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
			const half = 32 << 10 // of the connection's window, given back in one update
			p := s.attacker
			p.send(func(w *frameWriter) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) })
			p.send(func(w *frameWriter) {
				for range calls {
					w.call(p.next, "Bulk", value("4000"))
					p.next += 2
				}
			})
			taken := func() int {
				synctest.Wait()
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.read.data
			}
			for given := 0; taken()-given >= half; given += half {
				if err := p.tryToSend(func(w *frameWriter) { w.update(0, half) }); err != nil {
					break
				}
			}
			p.mu.Lock()
			answered := 0
			for _, a := range p.read.answers {
				if a.ended && a.last("grpc-status") == "0" {
					answered++
				}
			}
			p.mu.Unlock()
			if got := p.goAways(); answered != calls || len(got) > 0 {
				t.Errorf("%d calls of %d were answered; GOAWAYs %v", answered, calls, got)
			}
		})
	})
	for _, tt := range []struct {
		name string
		open func(w *frameWriter, i int)
	}{
		{"window of the connection alone", func(w *frameWriter, _ int) { w.update(0, 1) }},
		{"windows of all calls, to and fro", func(w *frameWriter, i int) {
			w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAttacker(t, unary.Options{}, onlyReading, func(t *testing.T, s *attackTest) {
				p := s.attacker
				p.send(func(w *frameWriter) {
					w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
					w.update(0, 1<<30)
					for range calls {
						w.call(p.next, "Ready", value("hello"))
						p.next += 2
					}
				})
				// The tokens that the calls have earned are spent too.
				most := 2*burst/(calls/16) + 1
				if n := s.flood(2*most, 1, tt.open); n > most {
					t.Errorf("the server has taken %d, want at most %d", n, most)
				}
				if g := p.goAway(); g.code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("GOAWAY with %v", g)
				}
			})
		})
	}
}

// TestWhatIsKept measures the memory of idle connections that were busy before.
func TestWhatIsKept(t *testing.T) {
	const (
		conns = 10
		calls = 4000
		each  = 120 << 10 // bytes: 64 of them are the last header block, which the decoder holds until the next
	)
	w := newFrameWriter()
	w.preface(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1})
	id := uint32(1)
	for ; id < 2*calls; id += 2 { // many open calls
		w.headers(id, false, request("Echo"))
	}
	for reset := uint32(1); reset < id; reset += 2 {
		w.reset(reset, http2.ErrCodeCancel)
	}
	// Many fields, and an unknown name that is long in the answer.
	w.headers(id, true, slices.Concat(request("Ready"), slices.Repeat([]hpack.HeaderField{{Name: "x"}}, 1500)))
	w.call(id+2, "Large", value("50000"))
	block := w.fields(request("/" + strings.Repeat("%", 60_000) + "/x"))
	must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 4, BlockFragment: block[:16<<10], EndStream: true}))
	for block = block[16<<10:]; len(block) > 0; {
		n := min(16<<10, len(block))
		must(w.fr.WriteContinuation(id+4, n == len(block), block[:n]))
		block = block[n:]
	}
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, ours, unary.Options{}, pipes())
		warm := s.connect(t)
		warm.echo()
		synctest.Wait()
		before := inUse()
		for range conns {
			c := s.l.dial(t)
			go func() { _, _ = io.Copy(io.Discard, c) }()
			if _, err := c.Write(w.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := (inUse() - before) / conns; got > each {
			t.Errorf("a connection keeps %d kB, want at most %d", got>>10, each>>10)
		}
		for _, v := range s.l.conns()[1:] {
			if v.closed.Load() {
				t.Error("a connection was closed")
			}
		}
		warm.echo()
		warm.close()
	})
}

// TestIdleConnections measures a thousand connections that have called once.
func TestIdleConnections(t *testing.T) {
	const n = 1000
	s := startServer(t, ours, unary.Options{}, loopback(t))
	warm := s.connect(t)
	warm.echo()
	goroutines, before := runtime.NumGoroutine(), inUse()
	conns := make([]net.Conn, 0, n)
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	w := newFrameWriter()
	for range n {
		c := s.l.dial(t)
		conns = append(conns, c)
		w.Reset()
		w.enc = hpack.NewEncoder(&w.block)
		w.preface()
		w.call(1, "Ready", value("hello"))
		if _, err := w.WriteTo(c); err != nil {
			t.Fatal(err)
		}
		fr := http2.NewFramer(nil, c)
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
				break
			}
		}
	}
	if got := runtime.NumGoroutine() - goroutines; got > n+5 {
		t.Errorf("%d goroutines for %d connections", got, n)
	}
	// The client's ends of the connections are in this process too.
	if each := (inUse() - before) / n; each > 64<<10 {
		t.Errorf("%d bytes for a connection", each)
	} else {
		t.Logf("%d bytes for a connection, both ends", each)
	}
	warm.echo()
}
