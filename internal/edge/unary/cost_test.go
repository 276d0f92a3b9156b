package unary

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/net/http2"
)

// TestWhatFramesCost reads one frame while many answers wait for windows. A frame that
// changes no window must not go through the waiting streams. A frame that goes through
// them must cost tokens in proportion.
func TestWhatFramesCost(t *testing.T) {
	const waiting = 3200
	setting := func(id http2.SettingID, v uint32) func(*http2.Framer) error {
		return func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: id, Val: v}) }
	}
	for _, tt := range []struct {
		name   string
		frame  func(*http2.Framer) error
		walks  bool // through the waiting streams
		tokens int
	}{
		{"empty SETTINGS", func(f *http2.Framer) error { return f.WriteSettings() }, false, 1},
		{"acknowledged SETTINGS", (*http2.Framer).WriteSettingsAck, false, 1},
		{"the same window", setting(http2.SettingInitialWindowSize, 1000), false, 2},
		{"there and back", func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
		}, false, 3},
		{"a smaller window", setting(http2.SettingInitialWindowSize, 999), false, 2 + 2*waiting/streamsAToken},
		{"a larger window", setting(http2.SettingInitialWindowSize, 1001), true, 2 + 2*waiting/streamsAToken},
		{"a smaller table", setting(http2.SettingHeaderTableSize, 0), false, 2},
		{"more streams", setting(http2.SettingMaxConcurrentStreams, 5), false, 2},
		{"larger frames", setting(http2.SettingMaxFrameSize, 1<<20), false, 2},
		{"an unknown setting", setting(0x77, 1), false, 2},
		{"the window of the connection", func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1) }, true, 1 + waiting/streamsAToken},
		{"the window of a stream", func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }, false, 1},
		{"the window of no stream", func(f *http2.Framer) error { return f.WriteWindowUpdate(3, 1) }, false, 1},
		{"PRIORITY", func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, false, 1},
		{"PING", func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, false, 1},
		{"RST_STREAM", func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, false, 1},
		{"GOAWAY", func(f *http2.Framer) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) }, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _, _ = ours.Close(), theirs.Close() }()
			r := newConn(NewServer(Options{}), ours)
			l := &r.shared.locked // no other goroutine uses it
			var in bytes.Buffer
			r.framer = http2.NewFramer(nil, &in)
			l.life.opened, l.lastID, l.flow.initial = true, 2*waiting, 1000
			for i := range uint32(waiting) {
				st := l.open(4*i + 1)
				st.sendWindow, st.waiting = -1000, refusal(0, "")
				st.waiting.message = make([]byte, 10)
				l.flow.blocked = append(l.flow.blocked, st)
			}
			// The last stream is gone. Only a frame that goes through all streams takes it off
			// the list.
			last := l.flow.blocked[waiting-1]
			delete(l.streams, last.id)
			last.waiting = nil
			if err := tt.frame(http2.NewFramer(&in, nil)); err != nil {
				t.Fatal(err)
			}
			before := r.tokens
			if err := r.read(false); err != nil {
				t.Fatal(err)
			}
			if walked := len(l.flow.blocked) < waiting; walked != tt.walks {
				t.Errorf("it has gone through the waiting streams: %v, want %v", walked, tt.walks)
			}
			if spent := before - r.tokens; spent > tt.tokens || spent < tt.tokens-1 {
				t.Errorf("it costs %d tokens, want %d", spent, tt.tokens)
			}
		})
	}
}
