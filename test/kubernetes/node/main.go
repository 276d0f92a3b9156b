//go:build linux

package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed node.sh
var script string

func main() {
	programs := flag.String("programs", "", "folder of the programs that .ci/kubernetes makes")
	envoy := flag.String("envoy", "", "Envoy's binary; empty: no image of Envoy")
	gateway := flag.String("gateway", "", "the binary of Envoy Gateway; empty: no image of it")
	reference := flag.String("reference", "", "the binary of envoyproxy/ratelimit; empty: no image of it")
	kgateway := flag.String("kgateway", "", "folder of kgateway and envoyinit; empty: no images of kgateway")
	keep := flag.String("logs", "", "folder to keep the logs of the node in; empty: they are removed")
	flag.Parse()
	if *programs == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	// The parent's death ends the node, and the kernel says so of the thread that starts it.
	runtime.LockOSThread()
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	n := node{programs: *programs, logs: *keep}
	code, err := n.run(ctx, options{envoy: *envoy, gateway: *gateway, reference: *reference, kgateway: *kgateway}, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		code = cmp.Or(code, 1)
	}
	os.Exit(code)
}

// A node is a Kubernetes node with everything that it writes in dir.
type node struct {
	dir, programs, logs string
}

// run starts the node, runs the command on it, and takes it down. It returns the exit code of the
// command, and an error if the host could not be prepared or restored. When ctx ends, it takes the
// node down.
func (n *node) run(ctx context.Context, o options, command []string) (code int, err error) {
	started := time.Now()
	if n.programs, err = filepath.Abs(n.programs); err != nil {
		return 0, err
	}
	if n.dir, err = os.MkdirTemp("", "node"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	images := filepath.Join(n.dir, "images")
	if err := writeImages(ctx, images, o); err != nil {
		return 0, err
	}
	restore, err := saveSettings()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	cgroup := "/" + filepath.Base(n.dir)
	defer func() { err = errors.Join(err, removeCgroups(cgroup)) }()
	if err := makeCgroups(cgroup); err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "node: images made in %.1f s\n", time.Since(started).Seconds())
	code, err = n.start(ctx, images, cgroup, command)
	fmt.Fprintf(os.Stderr, "node: %.1f s in all\n", time.Since(started).Seconds())
	return code, err
}

// start runs node.sh as the first process of new namespaces, until the command or ctx has ended.
func (n *node) start(ctx context.Context, images, cgroup string, command []string) (int, error) {
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	// When ctx ends, bash is killed. As it is the first process, the kernel ends all others with it.
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", script, "node.sh"}, command...)...)
	cmd.Env = append(os.Environ(), "NODE_DIR="+n.dir, "NODE_PROGRAMS="+n.programs, "NODE_IMAGES="+images, "NODE_CGROUP="+cgroup, "NODE_WD="+wd)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the namespaces needs root and Linux: %w", err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return 1, errors.New("stopped by a signal")
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return cmp.Or(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// remove removes what the node has written, and keeps its logs if they are wanted.
func (n *node) remove() error {
	if n.logs != "" {
		if err := os.CopyFS(n.logs, os.DirFS(filepath.Join(n.dir, "log"))); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.RemoveAll(n.dir)
}

const cgroups = "/sys/fs/cgroup"

// hierarchies returns the folders in which a control group is made: one for each controller with
// version 1, or only one.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, nil
	}
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(cgroups, e.Name()))
		}
	}
	return dirs, nil
}

// makeCgroups makes the control group of the node, so that several nodes do not share one.
func makeCgroups(name string) error {
	dirs, err := hierarchies()
	for _, dir := range dirs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	return err
}

// removeCgroups removes the control group of the node and those of its pods. The kernel keeps
// the group of a process for some time after its end.
func removeCgroups(name string) error {
	dirs, err := hierarchies()
	for _, dir := range dirs {
		err = errors.Join(err, removeTree(filepath.Join(dir, name)))
	}
	return err
}

func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		for try := 0; ; try++ {
			rmErr := syscall.Rmdir(dirs[i])
			if rmErr == nil || errors.Is(rmErr, fs.ErrNotExist) {
				break
			}
			if try == 50 || !errors.Is(rmErr, syscall.EBUSY) {
				return errors.Join(err, fmt.Errorf("removing %s: %w", strings.TrimPrefix(dirs[i], cgroups), rmErr))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return err
}
