package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
)

const unixScheme = "unix://"

// listen opens one address: host:port, or unix:///path with the file mode. Errors name
// setting, where the operator can correct the address.
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
		return nil, fmt.Errorf("%s: %s is in use by another process; end that process or set another address", setting, address)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", setting, address, err)
	}
	return l, nil
}

// listenUnix listens on a socket file, instead of one that a dead process left, and sets its
// mode. Until then the umask of the process says who may connect.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := files.CheckDirectory(path); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes a socket that no process listens on. It returns an error if path is another
// file, if a process listens on it, or if it cannot find out.
func removeStale(path string) error {
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
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path) // the process that made it is gone
	default:
		return fmt.Errorf("cannot find out whether another process listens on it: %w", err)
	}
}

type listeners struct {
	grpc                            []net.Listener
	http, admin, metrics, reference net.Listener
}

func openListeners(s settings.Settings) (ls listeners, err error) {
	defer func() {
		if err != nil {
			_ = ls.close() // always nil
		}
	}()
	for _, a := range s.GRPC.Address {
		l, err := listen("grpc.address", a, fs.FileMode(s.GRPC.SocketMode))
		if err != nil {
			return ls, err
		}
		ls.grpc = append(ls.grpc, l)
	}
	for _, one := range []struct {
		setting string
		address settings.Address
		to      *net.Listener
	}{
		{"http.address", s.HTTP.Address, &ls.http},
		{"admin.address", s.Admin.Address, &ls.admin},
		{"metrics.address", s.Metrics.Address, &ls.metrics},
		{"PROMETHEUS_ADDR", s.DropIn.Metrics.Address, &ls.reference},
	} {
		if one.address == "" {
			continue
		}
		if *one.to, err = listen(one.setting, one.address, 0); err != nil {
			return ls, err
		}
	}
	return ls, nil
}

// close closes the listeners. Servers close theirs too, and a second Close is harmless.
func (ls listeners) close() error {
	for _, l := range append(ls.grpc, ls.http, ls.admin, ls.metrics, ls.reference) {
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
	switch {
	case l == nil:
		return ""
	case l.Addr().Network() == "unix":
		return unixScheme + l.Addr().String()
	default:
		return l.Addr().String()
	}
}
