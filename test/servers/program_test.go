package servers

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
)

func TestRun(t *testing.T) {
	var address, dir string
	err := Run(t.Context(), func(tb TB) {
		dir = tb.TempDir()
		s := StartRedis(tb)
		address = s.Addr()
		do(t, s, "SET", "k", "v")
	})
	if err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the server outlived the program that started it")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: got %v, want that it is gone", err)
	}
}

// TestRunFails proves that an error ends the program, and that it is cleaned up
// after nevertheless, as after a test.
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
