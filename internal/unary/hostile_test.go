package unary_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/unary"
)

// What the server promises of frames that are no calls: see its manual.
const (
	burst     = 10_000 // frames that cost one token each
	resetCost = 10     // tokens for what makes the server reset a stream
)

// A scene is a server in a bubble, with one client that behaves and one that does
// not. No time passes in it but by Sleep.
type scene struct {
	*stage
	ledger    *ledger
	neighbour *peer // is served all the while
	attacker  *peer
	end       *visitor // the server's end of the attacker's connection
}

// inBubble plays f. The attacker has sent its preface, and reads.
func inBubble(t *testing.T, o unary.Options, m manner, f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{ledger: newLedger()}
		o.Meters = s.ledger
		s.stage = newStage(t, lean, o, pipes())
		s.neighbour = s.connect(t)
		s.neighbour.echo()
		s.attacker = newPeer(t, s.l.dial(t), m)
		synctest.Wait()
		s.end = s.l.conns()[1]
		f(t, s)
		s.neighbour.echo()
		s.neighbour.sound()
		s.attacker.sound()
		s.attacker.close()
		s.neighbour.close()
		synctest.Wait()
	})
}

// flood has the attacker send what frames makes again and again, until it is told to
// go, and returns how often it has. After each time the neighbour is served.
func (s *scene) flood(most, at int, frames func(w *wire, i int)) int {
	for n := 0; n < most; {
		if s.attacker.try(func(w *wire) {
			for range at {
				frames(w, n)
				n++
			}
		}) != nil {
			return n
		}
		synctest.Wait()
		s.neighbour.mustEcho("Ready")
		if len(s.attacker.farewells()) > 0 {
			return n
		}
	}
	return most
}

// begin begins calls whose requests have not ended.
func (s *scene) begin(t *testing.T, n int, method string) {
	t.Helper()
	s.attacker.send(func(w *wire) {
		for range n {
			w.headers(s.attacker.next, false, request(method))
			s.attacker.next += 2
		}
	})
}

// TestFloods sends frames of each kind that make a server work without being calls.
// However many there are, the server takes as many as its budget allows.
func TestFloods(t *testing.T) {
	stream := func(w *wire, i int, f func(id uint32)) { // a stream each
		id := uint32(2*i + 101)
		w.headers(id, false, request("Echo"))
		f(id)
	}
	for _, tt := range []struct {
		name  string
		cost  int // tokens for each
		frame func(w *wire, i int)
	}{
		{"PING answers", 1, func(w *wire, _ int) { must(w.fr.WritePing(true, [8]byte{})) }},
		{"SETTINGS, empty", 1, func(w *wire, _ int) { w.settings() }},
		{"SETTINGS, of one", 2, func(w *wire, i int) {
			w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 1000)})
		}},
		{"SETTINGS, unknown", 2, func(w *wire, i int) { w.settings(http2.Setting{ID: 0x77, Val: uint32(i)}) }},
		{"SETTINGS acknowledged that were not sent", 1, func(w *wire, _ int) { must(w.fr.WriteSettingsAck()) }},
		{"PRIORITY", 1, func(w *wire, i int) { must(w.fr.WritePriority(uint32(i*2+1), http2.PriorityParam{})) }},
		{"PRIORITY on itself", resetCost, func(w *wire, _ int) { must(w.fr.WritePriority(1, http2.PriorityParam{StreamDep: 1})) }},
		{"WINDOW_UPDATE of the connection", 1, func(w *wire, _ int) { w.update(0, 1) }},
		{"WINDOW_UPDATE of a stream", 1, func(w *wire, _ int) { w.update(1, 1) }},
		{"WINDOW_UPDATE of a stream that is gone", 1, func(w *wire, _ int) { w.update(99, 1) }},
		{"RST_STREAM of a stream that is gone", 1, func(w *wire, _ int) { w.reset(99, http2.ErrCodeCancel) }},
		{"GOAWAY", 1, func(w *wire, _ int) { must(w.fr.WriteGoAway(0, http2.ErrCodeNo, nil)) }},
		{"unknown frames", 1, func(w *wire, _ int) { w.raw(0x42, 0, 0, []byte("nothing")) }},
		{"DATA, empty", 1, func(w *wire, _ int) { w.data(1, false, nil) }},
		{"DATA, padding alone", 1, func(w *wire, _ int) { must(w.fr.WriteDataPadded(1, false, nil, make([]byte, 5))) }},
		{"DATA, one byte", 1, func(w *wire, i int) { w.data(uint32(i%20*2+1), false, []byte{0}) }},
		{"DATA for a stream that is gone", 2, func(w *wire, _ int) { w.data(99, false, nil) }},
		{"DATA behind the end", resetCost, func(w *wire, i int) {
			stream(w, i, func(id uint32) { w.data(id, true, framed(0, nil)); w.data(id, true, nil) })
		}},

		// Calls that are given up: each costs a frame.
		{"rapid reset", 1, func(w *wire, i int) { stream(w, i, func(id uint32) { w.reset(id, http2.ErrCodeCancel) }) }},
		{"rapid reset of whole calls", 1, func(w *wire, i int) {
			w.call(uint32(2*i+101), "Gate", nil)
			w.reset(uint32(2*i+101), http2.ErrCodeCancel)
		}},

		// "Made you reset": calls that the server has to give up cost more.
		{"no window update", resetCost, func(w *wire, i int) { stream(w, i, func(id uint32) { w.update(id, 0) }) }},
		{"a window that is too large", resetCost, func(w *wire, i int) { stream(w, i, func(id uint32) { w.update(id, 1<<31-1) }) }},
		{"priority on itself", resetCost, func(w *wire, i int) {
			stream(w, i, func(id uint32) { must(w.fr.WritePriority(id, http2.PriorityParam{StreamDep: id})) })
		}},
		{"DATA beyond content-length", resetCost, func(w *wire, i int) {
			id := uint32(2*i + 101)
			w.headers(id, false, request("Echo", "content-length: 1"))
			w.data(id, true, framed(0, nil))
		}},
		{"trailers that do not end", resetCost, func(w *wire, i int) {
			stream(w, i, func(id uint32) { w.headers(id, false, []hpack.HeaderField{{Name: "x", Value: "y"}}) })
		}},
		{"malformed headers", resetCost, func(w *wire, i int) { w.headers(uint32(2*i+101), true, request("Echo", "Upper: x")) }},
		{"headers that depend on themselves", resetCost, func(w *wire, i int) {
			id := uint32(2*i + 101)
			must(w.fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndHeaders: true, EndStream: true, BlockFragment: w.fields(request("Echo")), Priority: http2.PriorityParam{StreamDep: id, Weight: 1},
			}))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
				s.attacker.send(func(w *wire) { w.preface() })
				s.begin(t, 20, "Gate") // 1 to 39
				// One that is gone, by the client's will.
				s.attacker.send(func(w *wire) { w.headers(99, false, request("Echo")); w.reset(99, http2.ErrCodeCancel) })
				const at = 50
				n := s.flood(2*burst, at, tt.frame)
				if most := burst/tt.cost + at; n > most || n < most/2 {
					t.Errorf("the server has taken %d, want about %d", n, most)
				}
				if g := s.attacker.farewell(); g.code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("GOAWAY with %v %q", g.code, g.debug)
				}
				if running := s.running.Load(); running > 0 {
					t.Errorf("%d calls are still running", running)
				}
				time.Sleep(5 * time.Second) // the client is heard out for a while
				s.attacker.ended()
				if got := s.ledger.goAways(); got["flood"] != 1 || len(got) != 1 {
					t.Errorf("counted %v", got)
				}
			})
		})
	}
}

// TestFramesThatArePaidFor makes sure that who calls may also send other frames, and
// who does it slowly too.
func TestFramesThatArePaidFor(t *testing.T) {
	for _, method := range []string{"Echo", "Ready"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, unary.Options{}, polite, func(_ *testing.T, s *scene) {
				p := s.attacker
				p.send(func(w *wire) { w.preface() })
				for range 300 {
					var first uint32
					p.send(func(w *wire) {
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
				for range 60 { // what 2,000 a second comes to
					time.Sleep(time.Second)
					p.send(func(w *wire) {
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

// TestPings makes sure that PINGs may come as often as is said, and no oftener.
func TestPings(t *testing.T) {
	ping := func(w *wire) { must(w.fr.WritePing(false, [8]byte{})) }
	t.Run("too many", func(t *testing.T) {
		inBubble(t, unary.Options{MinPingInterval: time.Minute}, rude, func(t *testing.T, s *scene) {
			s.attacker.send(func(w *wire) { w.preface() })
			time.Sleep(time.Second)
			n := s.flood(100, 1, func(w *wire, _ int) { ping(w) })
			if g := s.attacker.farewell(); g.code != http2.ErrCodeEnhanceYourCalm || g.debug != "too_many_pings" || n > 5 {
				t.Errorf("after %d PINGs: %v", n, g)
			}
			time.Sleep(5 * time.Second)
			s.attacker.ended()
			if got := s.ledger.goAways(); got["pings"] != 1 {
				t.Errorf("counted %v", got)
			}
		})
	})
	t.Run("as many as may be", func(t *testing.T) {
		inBubble(t, unary.Options{MinPingInterval: time.Minute}, rude, func(t *testing.T, s *scene) {
			s.attacker.send(func(w *wire) { w.preface() })
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
		inBubble(t, unary.Options{MinPingInterval: time.Minute}, rude, func(_ *testing.T, s *scene) {
			s.attacker.send(func(w *wire) { w.preface() })
			for range 30 {
				s.attacker.send(ping)
				s.attacker.echo()
			}
		})
	})
}

// TestSettingsFrame has thousands of settings in one frame, each of which would
// touch every stream.
func TestSettingsFrame(t *testing.T) {
	inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
		s.attacker.send(func(w *wire) { w.preface() })
		s.begin(t, 2000, "Gate")
		all := make([]http2.Setting, 2730)
		for i := range all {
			all[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
		}
		n := s.flood(100, 1, func(w *wire, _ int) { w.settings(all...) })
		if g := s.attacker.farewell(); g.code != http2.ErrCodeEnhanceYourCalm || n > 1 {
			t.Errorf("after %d frames: %v", n, g)
		}
	})
}

// TestRunning has calls begun and given up whose handlers do not end: there are never
// more of them than MaxStreams, whatever ends the streams.
func TestRunning(t *testing.T) {
	const most = 16
	for _, tt := range []struct {
		name string
		end  func(w *wire, id uint32)
	}{
		{"left open", func(*wire, uint32) {}},
		{"reset by the client", func(w *wire, id uint32) { w.reset(id, http2.ErrCodeCancel) }},
		{"reset for a window update of nothing", func(w *wire, id uint32) { w.update(id, 0) }},
		{"reset for a window too large", func(w *wire, id uint32) { w.update(id, 1<<31-1) }},
		{"reset for DATA behind the end", func(w *wire, id uint32) { w.data(id, true, []byte("more")) }},
		{"reset for trailers behind the end", func(w *wire, id uint32) { w.headers(id, true, []hpack.HeaderField{{Name: "x", Value: "y"}}) }},
	} {
		for _, method := range []string{"Stay", "Stop"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				inBubble(t, unary.Options{MaxStreams: most}, rude, func(t *testing.T, s *scene) {
					s.attacker.send(func(w *wire) { w.preface() })
					s.flood(10*most, 1, func(w *wire, i int) {
						id := uint32(2*i + 1)
						w.call(id, method, nil)
						tt.end(w, id)
					})
					if got := s.most.Load(); got != most {
						t.Errorf("%d handlers ran at once, want %d", got, most)
					}
					if s.ledger.reset(http2.ErrCodeRefusedStream) == 0 {
						t.Errorf("no call was refused")
					}
					// When they end, others may begin.
					s.open()
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

// TestRunningOfHalfRequests opens calls whose requests are not whole while the
// handlers of calls that were given up run still: together they are not more either.
func TestRunningOfHalfRequests(t *testing.T) {
	const most = 16
	inBubble(t, unary.Options{MaxStreams: most}, rude, func(t *testing.T, s *scene) {
		p := s.attacker
		p.send(func(w *wire) { w.preface() })
		for _, n := range []int{most - 1, most} {
			first := p.next
			s.begin(t, n, "Stay")
			p.send(func(w *wire) {
				for id := first; id < p.next; id += 2 {
					w.data(id, true, framed(0, nil))
				}
			})
			synctest.Wait()
			p.send(func(w *wire) {
				for id := first; id < p.next; id += 2 {
					w.reset(id, http2.ErrCodeCancel)
				}
			})
			synctest.Wait()
		}
		if got := s.most.Load(); got != most {
			t.Errorf("%d handlers ran at once, want %d", got, most)
		}
		s.open()
		synctest.Wait()
		p.echo()
	})
}

// TestCanceled makes sure that a call that is given up sees the end of its context.
func TestCanceled(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *peer)
	}{
		{"by a reset", func(p *peer) { p.send(func(w *wire) { w.reset(1, http2.ErrCodeCancel) }) }},
		{"by a mistake", func(p *peer) { p.send(func(w *wire) { w.update(1, 0) }) }},
		{"by a mistake that ends the connection", func(p *peer) { p.send(func(w *wire) { w.data(0, false, nil) }) }},
		{"by hanging up", func(p *peer) { p.close() }},
	} {
		for _, method := range []string{"Wait", "Slow"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
					s.attacker.send(func(w *wire) { w.preface() })
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
	block := newWire().fields([]hpack.HeaderField{{Name: "x-some-name", Value: strings.Repeat("v", 1000)}})
	for _, tt := range []struct {
		name  string
		block []byte
		bytes int64 // that the server may read
		code  http2.ErrCode
	}{
		{"empty", nil, 9*burst + 9000, http2.ErrCodeEnhanceYourCalm},
		{"one byte of a number each", []byte{0x80}, 10*burst + 9000, http2.ErrCodeEnhanceYourCalm},
		{"with fields", block, 2*most + 4<<10 + 16<<10, http2.ErrCodeEnhanceYourCalm},
		{"with references", bytes.Repeat([]byte{0x82}, 1000), 2*most + 4<<10 + 16<<10, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{MaxHeaderBytes: most}, rude, func(t *testing.T, s *scene) {
				s.attacker.send(func(w *wire) {
					w.preface()
					must(w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields(request("Echo"))}))
				})
				s.flood(2*burst, 1, func(w *wire, _ int) { must(w.fr.WriteContinuation(1, false, tt.block)) })
				if g := s.attacker.farewell(); g.code != tt.code {
					t.Errorf("GOAWAY %v %q", g.code, g.debug)
				}
				if n := s.end.read.Load(); n > tt.bytes {
					t.Errorf("the server has read %d bytes, want at most %d", n, tt.bytes)
				}
			})
		})
	}
}

// TestHeaderBombs sends small header blocks that stand for large ones.
func TestHeaderBombs(t *testing.T) {
	const most = 64 << 10
	big := []hpack.HeaderField{{Name: "x-big", Value: strings.Repeat("v", 4000)}}
	for _, tt := range []struct {
		name  string
		block func(w *wire) []byte
		code  http2.ErrCode // of a GOAWAY; zero: the calls alone are refused
		want  string        // with this status
	}{
		{"references", func(w *wire) []byte {
			return append(bytes.Clone(w.fields(append(request("Echo"), big...))), bytes.Repeat([]byte{0x80 | 62}, 12<<10)...)
		}, 0, "8"},
		{"a literal said to be huge", func(w *wire) []byte {
			return append(bytes.Clone(w.fields(request("Echo"))), 0x00, 0x01, 'x', 0x7f, 0xff, 0xff, 0xff, 0x7f)
		}, http2.ErrCodeCompression, ""},
		{"a number without end", func(w *wire) []byte {
			return append(append(bytes.Clone(w.fields(request("Echo"))), 0x00, 0x01, 'x', 0x7f), bytes.Repeat([]byte{0xff}, 1000)...)
		}, http2.ErrCodeCompression, ""},
		{"the table resized again and again", func(w *wire) []byte {
			return append(bytes.Repeat([]byte{0x20, 0x3f, 0xe1, 0x1f}, 3000), w.fields(request("Echo"))...)
		}, 0, "12"},
		{"a table larger than allowed", func(w *wire) []byte {
			return append([]byte{0x3f, 0xe2, 0x1f}, w.fields(request("Echo"))...)
		}, http2.ErrCodeCompression, ""},
		{"references to nothing", func(*wire) []byte { return bytes.Repeat([]byte{0x80 | 120}, 100) }, http2.ErrCodeCompression, ""},
		{"many fields", func(w *wire) []byte {
			return append(bytes.Clone(w.fields(request("Echo"))), bytes.Repeat([]byte{0x90}, 14<<10)...) // accept-encoding, each
		}, 0, "8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{MaxHeaderBytes: most}, rude, func(t *testing.T, s *scene) {
				s.attacker.send(func(w *wire) { w.preface() })
				before, calls := allocated(), 100
				for i := range calls {
					err := s.attacker.try(func(w *wire) {
						// What it refers to is what it has said in this block: the server knows that.
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
					if g := s.attacker.farewell(); g.code != tt.code {
						t.Errorf("GOAWAY %v %q", g.code, g.debug)
					}
				} else if a := s.attacker.answer(uint32(2*calls - 1)); a.last("grpc-status") != tt.want {
					t.Errorf("answered %v", a)
				}
				// 100 blocks of 16 KiB are written here; what they stand for is 50 MB each.
				if grown := allocated() - before; grown > 64<<20 {
					t.Errorf("%d MB were allocated", grown>>20)
				}
			})
		})
	}
}

// TestLongHeaders makes sure that a header list that is too long costs one call, be it
// by one field or by many.
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
			inBubble(t, unary.Options{MaxHeaderBytes: 8 << 10}, polite, func(t *testing.T, s *scene) {
				s.attacker.send(func(w *wire) { w.preface() })
				if a := s.attacker.call("Echo", nil, tt.more...); a.last("grpc-status") != "8" {
					t.Errorf("answered %v", a)
				}
				s.attacker.echo()
			})
		})
	}
}

// allocated is how much memory was ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// inUse is how much memory is in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // pools let go at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestOpening has clients that take their time to say what they are.
func TestOpening(t *testing.T) {
	const timeout = 10 * time.Second
	preface := func() []byte {
		w := newWire()
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
			o := unary.Options{OpenTimeout: timeout}
			if tt.tls {
				o.TLS = certificate(t)
			}
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				o.Meters = ledger
				s := newStage(t, lean, o, pipes())
				p := newPeer(t, s.l.dial(t), rude)
				begun := time.Now()
				for _, b := range tt.bytes {
					if p.try(func(w *wire) { w.WriteByte(b) }) != nil {
						break
					}
					if len(tt.bytes) != len(http2.ClientPreface) {
						time.Sleep(timeout / 15)
					}
				}
				p.ended()
				if took := time.Since(begun); took < timeout || took > timeout+timeout/4 {
					t.Errorf("it took %v until the connection was closed, want %v", took, timeout)
				}
				if got := ledger.goAways(); got["timeout"] != 1 {
					t.Errorf("counted %v", got)
				}
				p.close()
				synctest.Wait()
			})
		})
	}
}

// TestDeaf has a client that does not read: the server takes calls until what is to
// be sent is too much, and in the end hangs up.
func TestDeaf(t *testing.T) {
	const timeout = 20 * time.Second
	for _, method := range []string{"Bulk", "Large"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, unary.Options{WriteTimeout: timeout, MaxStreams: 64}, deaf, func(t *testing.T, s *scene) {
				const size = 60_000
				p := s.attacker
				before := inUse()
				var calls atomic.Int64
				// The first answer is written by a handler, so that the goroutine that reads is
				// free to go on.
				done := make(chan error, 1)
				go func() {
					done <- p.try(func(w *wire) {
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
				s.open()
				synctest.Wait()
				go func() {
					var err error
					for p.next = 3; err == nil && p.next < 1<<16; p.next += 2 {
						err = p.try(func(w *wire) { w.call(p.next, method, value(strconv.Itoa(size))) })
						calls.Add(1)
					}
					done <- err
				}()
				synctest.Wait()
				s.neighbour.echo()
				if grown := inUse() - before; grown > 16<<20 {
					t.Errorf("%d calls to nobody have taken %d MB", calls.Load(), grown>>20)
				}
				select {
				case err := <-done:
					// While a handler writes, the server reads on and refuses calls above
					// MaxStreams, until they are a flood.
					if got := s.ledger.goAways(); got["flood"] != 1 || len(got) != 1 {
						t.Fatalf("the server has hung up early: %v, %v", err, got)
					}
					return
				default:
				}
				if n := calls.Load(); n > 1000 {
					t.Errorf("%d calls were read though no answer was", n)
				}
				time.Sleep(timeout + timeout/4)
				if err := <-done; err == nil {
					t.Errorf("the server has not hung up")
				}
				if got := s.ledger.goAways(); got["slow"] != 1 {
					t.Errorf("counted %v", got)
				}
			})
		})
	}
}

// TestWindows has clients that let the server send hardly anything.
func TestWindows(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		inBubble(t, unary.Options{MaxStreams: 32}, rude, func(t *testing.T, s *scene) {
			p := s.attacker
			p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) })
			for range 100 {
				p.start("Bulk", value("1000"))
			}
			synctest.Wait()
			if n := s.ledger.reset(http2.ErrCodeRefusedStream); n != 100-32 {
				t.Errorf("%d calls were refused, want %d", n, 100-32)
			}
			// When windows open, the others are answered.
			p.send(func(w *wire) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5000}) })
			for id := uint32(1); id < 64; id += 2 {
				if a := p.answer(id); a.last("grpc-status") != "0" || len(a.data) != 1008 {
					t.Errorf("stream %d: %v", id, a)
				}
			}
		})
	})
	t.Run("a byte at a time", func(t *testing.T) {
		inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
			p := s.attacker
			p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}) })
			id := p.start("Bulk", value("60000"))
			s.flood(2*burst, 50, func(w *wire, _ int) { w.update(id, 1) })
			if g := p.farewell(); g.code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("GOAWAY %v", g)
			}
			if n := p.sofar(id).frames; n > burst+100 {
				t.Errorf("the answer has come in %d frames", n)
			}
		})
	})
	t.Run("of the connection", func(t *testing.T) {
		inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
			p := s.attacker
			p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) })
			first, second := p.start("Bulk", value("60000")), p.start("Large", value("60000"))
			synctest.Wait()
			sent := func() int { return len(p.sofar(first).data) + len(p.sofar(second).data) }
			if n := sent(); n != 65535 {
				t.Errorf("%d bytes were sent on a window of 65535", n)
			}
			p.send(func(w *wire) { w.update(0, 1000) })
			synctest.Wait()
			if n := sent(); n != 66535 {
				t.Errorf("%d bytes were sent on a window of 66535", n)
			}
			p.send(func(w *wire) { w.update(0, 1<<20) })
			if a, b := p.answer(first), p.answer(second); len(a.data) != 60009 || len(b.data) != 60009 {
				t.Errorf("answered %v and %v", a, b)
			}
		})
	})
	t.Run("negative", func(t *testing.T) {
		inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
			p := s.attacker
			p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}) })
			id := p.start("Bulk", value("1000"))
			synctest.Wait()
			// What was sent counts: the window is 100 below what it is set to.
			p.send(func(w *wire) { w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 40}) })
			p.send(func(w *wire) { w.update(id, 60) })
			synctest.Wait()
			if n := len(p.sofar(id).data); n != 100 {
				t.Errorf("%d bytes were sent on a window of 100", n)
			}
			p.send(func(w *wire) { w.update(id, 1) })
			synctest.Wait()
			if n := len(p.sofar(id).data); n != 101 {
				t.Errorf("%d bytes were sent on a window of 101", n)
			}
			p.send(func(w *wire) { w.update(id, 5000) })
			if a := p.answer(id); len(a.data) != 1008 {
				t.Errorf("answered %v", a)
			}
		})
	})
}

// TestHalfMessages sends the beginnings of many messages.
func TestHalfMessages(t *testing.T) {
	const (
		streams = 2000
		message = 1 << 20
	)
	for _, tt := range []struct {
		name string
		size int // that is sent of each
		most int64
	}{
		{"said to be large", 0, 8 << 20},
		{"of a few kilobytes", 8 << 10, 16 << 20},
		{"as much as may be", 60 << 10, 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{MaxMessageBytes: message}, rude, func(t *testing.T, s *scene) {
				p := s.attacker
				p.send(func(w *wire) { w.preface() })
				before := inUse()
				for id := uint32(1); id < 2*streams; id += 2 {
					err := p.try(func(w *wire) {
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

// TestUnpacking sends compressed messages that fit into a frame and take long to
// unpack. They cost as many tokens as that.
func TestUnpacking(t *testing.T) {
	noise := make([]byte, 8<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	unpacked := bytes.Repeat(noise, 48)
	packed := framed(1, zipped(unpacked))
	inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
		s.attacker.send(func(w *wire) { w.preface() })
		n := s.flood(burst, 1, func(w *wire, i int) {
			id := uint32(2*i + 1)
			w.headers(id, false, request("Ready", "grpc-encoding: gzip"))
			w.data(id, true, packed)
		})
		// 16 KiB cost a token; the answer earns 4.
		each := len(unpacked)/(16<<10) - 4
		if g := s.attacker.farewell(); g.code != http2.ErrCodeEnhanceYourCalm || n > burst/each+10 {
			t.Errorf("after %d of them: GOAWAY %v %q", n, g.code, g.debug)
		}
	})
}

// TestBombs sends small compressed messages that unpack to more than may be. They are
// refused before they are unpacked, so they cost no memory and no tokens.
func TestBombs(t *testing.T) {
	const most = 1 << 20
	lies := zipped(make([]byte, most))
	copy(lies[len(lies)-4:], []byte{0, 1, 0, 0}) // it says 256 bytes
	for _, tt := range []struct {
		name   string
		packed []byte
		code   string
	}{
		{"larger than a message may be", zipped(make([]byte, 2*most)), "8"},
		{"a thousand times its length", zipped(make([]byte, most)), "13"},
		{"longer than it says", lies, "13"},
		{"two in one", append(zipped(make([]byte, most)), zipped(make([]byte, 10))...), "13"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{MaxMessageBytes: most}, rude, func(t *testing.T, s *scene) {
				p := s.attacker
				p.send(func(w *wire) { w.preface() })
				const calls = 200
				ask := func() {
					w := func(w *wire) {
						w.headers(p.next, false, request("Ready", "grpc-encoding: gzip"))
						w.data(p.next, true, framed(1, tt.packed))
					}
					p.send(w)
					if a := p.answer(p.next); a.last("grpc-status") != tt.code {
						t.Errorf("answered %v, want %s", a, tt.code)
					}
					p.next += 2
				}
				ask()
				before := allocated()
				for range calls {
					ask()
				}
				if each := (allocated() - before) / calls; each > 256<<10 {
					t.Errorf("a message of %d bytes takes %d kB", len(tt.packed), each>>10)
				}
			})
		})
	}
}

// TestOddMessages sends messages that are not what they say.
func TestOddMessages(t *testing.T) {
	const most = 1 << 20
	bomb := func() []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		zeros := make([]byte, 1<<20)
		for range 12 {
			_, err := z.Write(zeros)
			must(err)
		}
		must(z.Close())
		return b.Bytes()
	}()
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
		{"gzip bomb", framed(1, bomb), []string{"grpc-encoding: gzip"}, "8"},
		{"gzip that is none", framed(1, []byte("not gzip at all")), []string{"grpc-encoding: gzip"}, "13"},
		{"gzip cut off", framed(1, zipped(value("hello"))[:20]), []string{"grpc-encoding: gzip"}, "13"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{MaxMessageBytes: most}, polite, func(t *testing.T, s *scene) {
				p := s.attacker
				p.send(func(w *wire) { w.preface() })
				before := allocated()
				p.send(func(w *wire) {
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

// TestPanics makes sure that a panic that a handler did not recover from ends its
// connection, and no other one.
func TestPanics(t *testing.T) {
	for name, panicsAt := range map[string]bool{"without waiting": false, "waiting": true} {
		t.Run(name, func(t *testing.T) {
			panicking := kind{"panicking", func(p *player, o unary.Options) transport {
				s := newUnary(p, o).(*unary.Server)
				s.Handle(play+"Refuse", func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
					if wait == panicsAt {
						panic("as asked")
					}
					return answer, false, nil
				})
				return s
			}}
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				s := newStage(t, panicking, unary.Options{Meters: ledger}, pipes())
				other, p := s.connect(t), s.connect(t)
				p.start("Refuse", value("x"))
				p.ended()
				other.echo()
				if got := ledger.goAways(); got["bug"] != 1 || len(got) != 1 {
					t.Errorf("counted %v", got)
				}
				other.close()
			})
		})
	}
}

// TestAnswersOfNothing makes sure that a method that has no answer to give, not even an
// empty one, costs its call alone.
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
			silent := kind{"silent", func(p *player, o unary.Options) transport {
				s := unary.NewServer(o)
				s.RegisterService(p.desc(), p)
				s.Handle(play+"Ready", tt.handler)
				return s
			}}
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				s := newStage(t, silent, unary.Options{Meters: ledger}, pipes())
				p := s.connect(t)
				other := p.start("Gate", value("other"))
				for range 3 {
					if a := p.call("Ready", value("x")); a.last("grpc-status") != "13" {
						t.Errorf("answered %v", a)
					}
				}
				s.open()
				if a := p.answer(other); a.last("grpc-status") != "0" {
					t.Errorf("the other call was answered %v", a)
				}
				p.echo()
				if got := ledger.goAways(); len(got) > 0 {
					t.Errorf("counted %v", got)
				}
				p.sound()
				p.close()
			})
		})
	}
}

// TestBodiesAreLetGo has many calls whose answers wait for a window: their requests,
// which are much larger, are not kept.
func TestBodiesAreLetGo(t *testing.T) {
	const (
		calls = 40
		body  = 256 << 10
		piece = 16 << 10
	)
	inBubble(t, unary.Options{MaxMessageBytes: 2 * body}, rude, func(t *testing.T, s *scene) {
		p := s.attacker
		p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) })
		s.begin(t, 100, "Ready") // so that the list of those that wait is not gone through
		// A BytesValue, with a field that nobody knows.
		message := value("1000")
		message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), make([]byte, body))
		whole := framed(0, message)
		before := inUse()
		first := p.next
		for range calls {
			p.send(func(w *wire) { w.headers(p.next, false, request("Bulk")) })
			for b := whole; len(b) > 0; {
				n := min(piece, len(b))
				p.send(func(w *wire) { w.data(p.next, n == len(b), b[:n]) })
				b = b[n:]
				synctest.Wait() // for windows
			}
			if a := p.sofar(p.next); len(a.headers) != 1 || a.over() {
				t.Fatalf("answered %v, want it to wait", a)
			}
			p.next += 2
		}
		if grown := inUse() - before; grown > calls*body/4 {
			t.Errorf("%d answers that wait have taken %d kB", calls, grown>>10)
		}
		p.send(func(w *wire) {
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

// TestGivenUpBodies makes sure that what was sent of calls that were given up does not
// count against those that follow.
func TestGivenUpBodies(t *testing.T) {
	const message = 1 << 20
	inBubble(t, unary.Options{MaxMessageBytes: message}, rude, func(t *testing.T, s *scene) {
		p := s.attacker
		p.send(func(w *wire) { w.preface() })
		for range 100 {
			p.send(func(w *wire) {
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
		p.send(func(w *wire) {
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

// TestOpenHeaders opens many calls with long header lists, which are some kilobytes
// on the wire.
func TestOpenHeaders(t *testing.T) {
	const (
		calls  = 500
		fields = 1900
	)
	inBubble(t, unary.Options{MaxMessageBytes: 64 << 10}, rude, func(t *testing.T, s *scene) {
		p := s.attacker
		p.send(func(w *wire) { w.preface() })
		list := slices.Concat(request("Wait"), slices.Repeat([]hpack.HeaderField{{Name: "x"}}, fields))
		before := inUse()
		p.send(func(w *wire) {
			w.headers(p.next, false, list)
			block := slices.Clone(w.fields(list)) // all of it is in the table now
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
		// When those that were taken are given up, there is room for others.
		p.send(func(w *wire) {
			for id := uint32(1); id < p.next; id += 2 {
				w.reset(id, http2.ErrCodeCancel)
			}
		})
		p.next += 2
		p.echo()
	})
}

// TestWindowsPayForThemselves has thousands of answers wait for windows, which every
// window that opens goes through.
func TestWindowsPayForThemselves(t *testing.T) {
	const calls = 4000
	t.Run("a client that takes what it can", func(t *testing.T) {
		inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
			const half = 32 << 10 // of the window of the connection, given back at once
			p := s.attacker
			p.send(func(w *wire) { w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) })
			p.send(func(w *wire) {
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
				if err := p.try(func(w *wire) { w.update(0, half) }); err != nil {
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
			if got := p.farewells(); answered != calls || len(got) > 0 {
				t.Errorf("%d calls of %d were answered; told to go by %v", answered, calls, got)
			}
		})
	})
	for _, tt := range []struct {
		name string
		open func(w *wire, i int)
	}{
		{"window of the connection alone", func(w *wire, _ int) { w.update(0, 1) }},
		{"windows of all calls, to and fro", func(w *wire, i int) {
			w.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, unary.Options{}, rude, func(t *testing.T, s *scene) {
				p := s.attacker
				p.send(func(w *wire) {
					w.preface(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
					w.update(0, 1<<30)
					for range calls {
						w.call(p.next, "Ready", value("hello"))
						p.next += 2
					}
				})
				// What the calls have earned is spent too.
				most := 2*burst/(calls/16) + 1
				if n := s.flood(2*most, 1, tt.open); n > most {
					t.Errorf("the server has taken %d, want at most %d", n, most)
				}
				if g := p.farewell(); g.code != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("GOAWAY with %v", g)
				}
			})
		})
	}
}

// TestWhatIsKept measures connections that have done a lot, and are idle again.
func TestWhatIsKept(t *testing.T) {
	const (
		conns = 10
		calls = 4000
		each  = 120 << 10 // bytes: 64 of them are the last header block, which the decoder holds until the next
	)
	w := newWire()
	w.preface(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1})
	id := uint32(1)
	for ; id < 2*calls; id += 2 { // many calls at once
		w.headers(id, false, request("Echo"))
	}
	for reset := uint32(1); reset < id; reset += 2 {
		w.reset(reset, http2.ErrCodeCancel)
	}
	// Many fields, and a name that nobody knows and that is not short in an answer.
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
		s := newStage(t, lean, unary.Options{}, pipes())
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

// TestIdleConnections holds a thousand connections that have called once.
func TestIdleConnections(t *testing.T) {
	const n = 1000
	s := newStage(t, lean, unary.Options{}, loopback(t))
	warm := s.connect(t)
	warm.echo()
	goroutines, before := runtime.NumGoroutine(), inUse()
	conns := make([]net.Conn, 0, n)
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	w := newWire()
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
	// The client's ends are of this process too.
	if each := (inUse() - before) / n; each > 64<<10 {
		t.Errorf("%d bytes for a connection", each)
	} else {
		t.Logf("%d bytes for a connection, both ends", each)
	}
	warm.echo()
}
