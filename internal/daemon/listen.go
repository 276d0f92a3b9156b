package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
)

const unixScheme = "unix://"

// listen opens one address: host:port, or unix:///path with the given file mode.
// setting names the place to mend in an error.
func listen(setting string, address settings.Address, mode fs.FileMode) (net.Listener, error) {
	var (
		l   net.Listener
		err error
	)
	if path, ok := address.Socket(); ok {
		l, err = listenUnix(path, mode)
	} else {
		l, err = net.Listen("tcp", string(address))
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process: end it or set another address", setting, address)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", setting, address, err)
	}
	return l, nil
}

// unixListener removes its file when it is closed, unless another process has put
// its own there since.
type unixListener struct {
	net.Listener
	path string
	file fs.FileInfo
}

func (l unixListener) Close() error {
	err := l.Listener.Close()
	now, statErr := os.Lstat(l.path)
	// The time as well: the file system gives the number of a removed file to the
	// next one.
	if statErr == nil && os.SameFile(now, l.file) && now.ModTime().Equal(l.file.ModTime()) {
		err = errors.Join(err, os.Remove(l.path))
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
	file, err := os.Lstat(fresh)
	if err := errors.Join(err, os.Chmod(fresh, mode), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(fresh))
	}
	return unixListener{l, path, file}, nil
}

// checkStale refuses a path that a living process listens on, one of which that
// cannot be told, and one that is no socket at all.
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
	switch {
	case err == nil:
		_ = c.Close()
		return syscall.EADDRINUSE
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // nobody listens: left behind by a process that is gone
	default:
		return fmt.Errorf("cannot tell whether another process listens on it: %w", err)
	}
}

// listeners is every open listener; http and admin are nil where they are off.
type listeners struct {
	grpc        []net.Listener
	http, admin net.Listener
}

func openListeners(s settings.Settings) (ls listeners, err error) {
	defer func() {
		if err != nil {
			_ = ls.close() // it returns none
		}
	}()
	for _, a := range s.GRPC.Address {
		l, err := listen("grpc.address", a, fs.FileMode(s.GRPC.SocketMode))
		if err != nil {
			return ls, err
		}
		ls.grpc = append(ls.grpc, l)
	}
	if s.HTTP.Address != "" {
		if ls.http, err = listen("http.address", s.HTTP.Address, 0); err != nil {
			return ls, err
		}
	}
	if s.Admin.Address != "" {
		if ls.admin, err = listen("admin.address", s.Admin.Address, 0); err != nil {
			return ls, err
		}
	}
	return ls, nil
}

// close closes the listeners. Servers close theirs too, which is harmless.
func (ls listeners) close() error {
	for _, l := range append(ls.grpc, ls.http, ls.admin) {
		if l != nil {
			_ = l.Close() // its server may have closed it
		}
	}
	return nil
}

func (ls listeners) addresses() []string {
	var all []string
	for _, l := range ls.grpc {
		all = append(all, address(l))
	}
	return all
}

func address(l net.Listener) string {
	switch l := l.(type) {
	case nil:
		return ""
	case unixListener:
		return unixScheme + l.path
	default:
		return l.Addr().String()
	}
}
