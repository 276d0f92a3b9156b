package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
)

func TestRun(t *testing.T) {
	var p *Process
	var dir string
	err := Run(t.Context(), func(tb TB) {
		dir = tb.TempDir()
		var err error
		if p, err = Start("sleep", exec.Command("sleep", "1h")); err != nil {
			tb.Fatalf("%w", err)
		}
		tb.Cleanup(p.Kill)
	})
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("the process outlived the program that started it")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: got %v, want that it is gone", err)
	}
}

// TestRunFails proves that an error ends the program, and that the cleanups run
// after an error as they do after a test.
func TestRunFails(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	var ended context.Context
	err := Run(t.Context(), func(tb TB) {
		ended = tb.Context()
		tb.Cleanup(func() { got = append(got, "first") })
		tb.Cleanup(func() {
			tb.Cleanup(func() { got = append(got, "added") })
			tb.Fatalf("a second failure")
		})
		tb.Cleanup(func() {
			if tb.Context().Err() != nil {
				got = append(got, "ended")
			}
		})
		tb.Fatalf("it is %w", broken)
		got = append(got, "after Fatalf")
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want one that wraps %q", err, broken)
	}
	if want := []string{"ended", "added", "first"}; !slices.Equal(got, want) {
		t.Errorf("what ran: got %q, want %q", got, want)
	}
	if ended.Err() == nil {
		t.Error("the context is still alive")
	}
}

// recorder is a TB that records how a test was ended instead of ending it.
type recorder struct {
	TB
	skipped, failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestMissing(t *testing.T) {
	for ci, wantFailed := range map[string]bool{"": false, "false": false, "true": true} {
		t.Setenv("CI", ci)
		r := &recorder{}
		Missing(r, "some-server", "install it")
		if r.failed != wantFailed || !r.failed && !r.skipped {
			t.Errorf("CI=%q: failed %t, skipped %t; want failed %t, and otherwise skipped", ci, r.failed, r.skipped, wantFailed)
		}
	}
}
