package accesslog

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestAhead reads what a stream has given, although more is to come, and then all of it and its error.
func TestAhead(t *testing.T) {
	out, in := io.Pipe()
	a := newAhead(out, 1, nil)
	b := make([]byte, 10)
	for _, text := range []string{"one", "two"} {
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(a, b[:len(text)]); err != nil || string(b[:n]) != text {
			t.Errorf("got %q, %v", b[:n], err)
		}
	}
	long := strings.Repeat("0123456789abcde\n", 5*aheadBytes/16)
	broken := errors.New("broken")
	go func() {
		_, _ = io.WriteString(in, long) // an error would be one of the other end
		_ = in.CloseWithError(broken)   // always nil
	}()
	got, err := io.ReadAll(a)
	if string(got) != long || !errors.Is(err, broken) {
		t.Errorf("got %d bytes of %d, %v", len(got), len(long), err)
	}
	<-a.gone
}

// TestAheadDone ends a stream that nothing reads to its end.
func TestAheadDone(t *testing.T) {
	done := make(chan struct{})
	a := newAhead(strings.NewReader(strings.Repeat("x", 100*aheadBytes)), aheadBytes, done)
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(done)
	<-a.gone
	if _, err := io.Copy(io.Discard, a); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
