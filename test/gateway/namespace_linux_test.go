package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

const (
	// envPrograms names the folder with envoy-gateway, and with the files of its module that the tests
	// read. The tests run only with it.
	envPrograms = "SLIDEGATE_TEST_GATEWAY"
	// envService names another binary to run as /bin/ratelimit, for instance that of
	// envoyproxy/ratelimit. It must be static.
	envService = "SLIDEGATE_TEST_RLS"
	// envInside is set in the process that has the namespaces.
	envInside = "SLIDEGATE_TEST_GATEWAY_INSIDE"

	nodeIP = "10.9.0.1"
	podIP  = "10.9.0.2"
	// hosts is the content of /etc/hosts, in the node and in the pod.
	hosts = "127.0.0.1 localhost\n" +
		nodeIP + " envoy-gateway redis.redis.svc\n" +
		podIP + " envoy-ratelimit.envoy-gateway-system.svc.cluster.local\n"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envPrograms) == "":
		fmt.Println("gateway: the tests with Envoy Gateway do not run here; run make eg-standalone-test")
	case os.Getenv(envInside) == "":
		os.Exit(enter())
	default:
		if err := node(); err != nil {
			fmt.Println("gateway: preparing the namespaces:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
}

// enter runs the tests again in namespaces of their own. The kernel ends every process in them
// when the tests end.
func enter() int {
	// Inside there is no network to fetch modules for the build. The pod has no C library.
	service := os.Getenv(envService)
	if service == "" {
		err := os.Setenv("CGO_ENABLED", "0")
		if err == nil {
			service, err = process.Build("cmd/rls")
		}
		if err != nil {
			fmt.Println("gateway:", err)
			return 1
		}
		defer remove(filepath.Dir(service))
	}
	root, err := os.MkdirTemp("", "gateway")
	if err != nil {
		fmt.Println("gateway:", err)
		return 1
	}
	defer remove(root)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"="+root, envService+"="+service)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	// Pdeathsig is about the thread that starts the process.
	runtime.LockOSThread()
	if err := cmd.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return cmp.Or(exit.ExitCode(), 1)
		}
		fmt.Println("gateway: starting the tests in namespaces of their own needs root:", err)
		return 1
	}
	return 0
}

// remove removes a temporary folder. If that fails, it is left.
func remove(dir string) { _ = os.RemoveAll(dir) }

// node makes the root folder and the network of the node.
func node() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := copyRoot(os.Getenv(envInside)); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	return ip("link", "set", "lo", "up")
}

// copyRoot makes root the root folder. It has all of the present one, and besides /certs and
// another /etc/hosts.
func copyRoot(root string) error {
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := "/"+e.Name(), filepath.Join(root, e.Name())
		switch {
		case e.Name() == "certs":
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return err
			}
		case e.IsDir():
			if err := bind(from, to); err != nil {
				return err
			}
		}
	}
	if err := os.Mkdir(filepath.Join(root, "certs"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	if err := syscall.Mount(filepath.Join(root, "hosts"), filepath.Join(root, "etc/hosts"), "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	return enterRoot(root)
}

// bind makes the folder from appear at to.
func bind(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", from, err)
	}
	return nil
}

// enterRoot makes root the root folder of this process, and keeps the working directory.
func enterRoot(root string) error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(root, ".old"), 0o700); err != nil {
		return err
	}
	if err := syscall.PivotRoot(root, filepath.Join(root, ".old")); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir(wd); err != nil {
		return err
	}
	return syscall.Unmount("/.old", syscall.MNT_DETACH)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// A network is a network namespace, joined to that of the node.
type network struct {
	calls chan func()
}

// newNetwork makes the network of the pod, for the time of the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{calls: make(chan func())}
	ready := make(chan error)
	go func() {
		// The thread has the namespace, and every process that it starts inherits it. The thread is
		// never unlocked, so it ends with the goroutine.
		runtime.LockOSThread()
		ready <- syscall.Unshare(syscall.CLONE_NEWNET)
		for f := range n.calls {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("gateway: a network namespace: %v", err)
	}
	t.Cleanup(func() { close(n.calls) })
	var thread int
	n.do(func() { thread = syscall.Gettid() })
	for _, args := range [][]string{
		{"link", "add", "node0", "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(thread)},
		{"addr", "add", nodeIP + "/24", "dev", "node0"},
		{"link", "set", "node0", "up"},
	} {
		if err := ip(args...); err != nil {
			t.Fatalf("gateway: %v", err)
		}
	}
	// The kernel removes node0 with its peer only when the namespace ends, which may be later.
	t.Cleanup(func() { _ = ip("link", "del", "node0") })
	n.do(func() {
		for _, args := range [][]string{
			{"link", "set", "lo", "up"},
			{"addr", "add", podIP + "/24", "dev", "eth0"},
			{"link", "set", "eth0", "up"},
		} {
			if err := ip(args...); err != nil {
				t.Errorf("gateway: %v", err)
			}
		}
	})
	return n
}

// do calls f in the namespace, on a thread that has it.
func (n *network) do(f func()) {
	done := make(chan struct{})
	n.calls <- func() { defer close(done); f() }
	<-done
}
