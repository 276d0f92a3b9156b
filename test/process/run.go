package process

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
)

// A TB is what a helper needs of the test that it works for. Every testing.TB is
// one, and Run makes one for a program.
type TB interface {
	Context() context.Context
	Cleanup(func())
	TempDir() string
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Run calls f with a TB and returns when f and all cleanups have ended. Fatalf and
// Skipf end f, as they end a test, and are the error that Run returns. Only the
// goroutine of f may call them. The TB's context is a child of ctx and ends before
// the cleanups begin.
func Run(ctx context.Context, f func(TB)) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &program{ctx: ctx}
	ended := make(chan struct{})
	// Fatalf ends the goroutine of f, whatever functions f has called.
	go func() {
		defer close(ended)
		defer p.clean()
		defer cancel()
		f(p)
	}()
	<-ended
	return p.err
}

// program is the TB of Run.
type program struct {
	ctx context.Context
	err error

	mu       sync.Mutex
	cleanups []func()
}

func (p *program) Context() context.Context { return p.ctx }

func (p *program) Helper() {}

func (p *program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// clean runs the cleanups, the last one first, also those that cleanups add.
func (p *program) clean() {
	p.mu.Lock()
	last := len(p.cleanups) - 1
	if last < 0 {
		p.mu.Unlock()
		return
	}
	f := p.cleanups[last]
	p.cleanups = p.cleanups[:last]
	p.mu.Unlock()
	defer p.clean() // also if f ends in Fatalf
	f()
}

func (p *program) TempDir() string {
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		p.Fatalf("making a folder: %w", err)
	}
	// If removing fails, temporary files are left.
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Fatalf keeps the first error. Its format may have %w.
func (p *program) Fatalf(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	runtime.Goexit()
}

// Skipf is an error too: a program that cannot do its work has failed.
func (p *program) Skipf(format string, args ...any) { p.Fatalf(format, args...) }
