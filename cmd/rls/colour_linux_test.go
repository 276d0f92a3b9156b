package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// pty opens a new terminal.
func pty(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var unlock, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestColours writes to terminals and to a file. Only a terminal gets colours, unless NO_COLOR
// or TERM turns them off.
func TestColours(t *testing.T) {
	tty := pty(t)
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		f             *os.File
		noColor, term string
		want          string
	}{
		{tty, "", "xterm", "\x1b[1;31mx\x1b[0m"},
		{tty, "1", "xterm", "x"},
		{tty, "", "dumb", "x"},
		{file, "", "xterm", "x"},
	} {
		t.Setenv("NO_COLOR", tt.noColor)
		t.Setenv("TERM", tt.term)
		if got := coloursOf(tt.f).Red("x"); got != tt.want {
			t.Errorf("%s, NO_COLOR=%s, TERM=%s: got %q, want %q", tt.f.Name(), tt.noColor, tt.term, got, tt.want)
		}
	}
}

// TestLogFormat: at a terminal the log is for people, unless the settings choose a format.
func TestLogFormat(t *testing.T) {
	before := os.Stderr
	defer func() { os.Stderr = before }()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		f            *os.File
		chosen, want string
	}{{pty(t), "", "console"}, {pty(t), "json", "json"}, {file, "", "json"}, {file, "console", "console"}} {
		environ := []string{}
		if tt.chosen != "" {
			environ = append(environ, "SLIDEGATE_LOG_FORMAT="+tt.chosen)
		}
		os.Stderr = tt.f
		l, err := load(func([]string, ...settings.DropIn) (settings.Settings, settings.Origins, error) {
			return settings.Load("", environ)
		})
		if err != nil || l.Log.Format != tt.want {
			t.Errorf("%s with %q: the format is %s (%v), want %s", tt.f.Name(), tt.chosen, l.Log.Format, err, tt.want)
		}
	}
}
