package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// BenchmarkSend is what a call costs the caller without Redis: one that is sent by
// itself, to a server that answers at once.
func BenchmarkSend(b *testing.B) {
	s := New(replying{"\x01\x00\x00\x00\x02" + strings.Repeat("\x00", answerBytes-5+instantBytes)}, Options{Timeout: time.Second})
	defer s.Close()
	s.single.clock.learn(0, 0, now())
	checks := []window.Check{{Key: "k", Limit: window.Limit{Hits: 100, Window: time.Minute}, Cost: 1}}
	decisions := make([]window.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Take(b.Context(), window.MayWait, checks, decisions); err != nil {
			b.Fatal(err)
		}
	}
}
