package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const unixScheme = "unix://"

// listen opens one address: host:port, or unix:///path with the given file mode.
// setting names the place to mend in an error.
func listen(setting, address string, mode fs.FileMode) (net.Listener, error) {
	var (
		l   net.Listener
		err error
	)
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		l, err = listenUnix(path, mode)
	} else {
		l, err = net.Listen("tcp", address)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process: end it or set another address", setting, address)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", setting, address, err)
	}
	return l, nil
}

// unixListener removes its file when it is closed.
type unixListener struct {
	net.Listener
	path string
}

func (l unixListener) Close() error {
	err := l.Listener.Close()
	if rmErr := os.Remove(l.path); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	return err
}

// listenUnix listens on a socket file. It is made under another name and renamed,
// so that nobody meets it before it has its mode; what a dead process left at
// path is replaced.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := checkStale(path); err != nil {
		return nil, err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the name it knows is about to change
	if err := errors.Join(os.Chmod(fresh, mode), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return unixListener{l, path}, nil
}

// checkStale refuses a path that a living process listens on, or that is no
// socket at all.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil // nobody answers: left behind by a process that is gone
	}
	_ = c.Close()
	return syscall.EADDRINUSE
}
