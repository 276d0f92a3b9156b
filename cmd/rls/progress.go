package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/slidegate/slidegate/internal/words"
)

// progress shows on a terminal how far a replay is. On anything else it shows nothing.
type progress struct {
	out        *os.File
	source     *sourceCount
	begun      time.Time
	stop, done chan struct{} // nil: nothing is shown
}

// progressEvery is how often the line changes.
const progressEvery = 200 * time.Millisecond

func newProgress(out *os.File, source *sourceCount) *progress {
	p := &progress{out: out, source: source, begun: time.Now()}
	if term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.run()
	}
	return p
}

func (p *progress) run() {
	defer close(p.done)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			fmt.Fprint(p.out, "\r\x1b[K")
			return
		case now := <-tick.C:
			read, total := p.source.reader.Progress()
			line := progressLine(now.Sub(p.begun), p.source.counted.Load(), read, total)
			if width := widthOf(p.out); width > 0 && len(line) >= width {
				line = line[:max(width-1, 0)]
			}
			fmt.Fprint(p.out, "\r"+line+"\x1b[K")
		}
	}
}

func (p *progress) end() {
	if p.stop != nil {
		close(p.stop)
		<-p.done
	}
}

// progressLine says how many requests were read, how fast, and what is left. total is zero if that
// is unknown.
func progressLine(took time.Duration, requests uint64, read, total int64) string {
	rate := float64(requests) / max(took.Seconds(), 1e-3)
	text := fmt.Sprintf("%s requests, %s/s", words.Short(float64(requests)), words.Short(rate))
	if total <= 0 {
		return text
	}
	const width = 20
	share := min(float64(read)/float64(total), 1)
	full := int(share * width)
	text = fmt.Sprintf("[%s%s] %2.0f%%, %s", strings.Repeat("#", full), strings.Repeat(" ", width-full), share*100, text)
	if share > 0.001 {
		left := time.Duration(float64(took) * (1 - share) / share)
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
