//go:build linux

package main

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed node.sh
var script string

func main() {
	log := func(err error) int {
		fmt.Fprintln(os.Stderr, "node:", err)
		return 1
	}
	programs := flag.String("programs", "", "folder of the programs that .ci/kubernetes makes")
	envoy := flag.String("envoy", "", "Envoy's binary; empty: no image of Envoy")
	gateway := flag.String("gateway", "", "the binary of Envoy Gateway; empty: no image of it")
	reference := flag.String("reference", "", "the binary of envoyproxy/ratelimit; empty: no image of it")
	keep := flag.String("logs", "", "folder to keep the logs of the node in; empty: they are removed")
	flag.Parse()
	if *programs == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		os.Exit(log(err))
	}
	n := node{dir: dir, programs: *programs, logs: *keep}
	code, err := n.run(options{envoy: *envoy, gateway: *gateway, reference: *reference}, flag.Args())
	if err != nil {
		code = cmp.Or(code, log(err))
	}
	os.Exit(code)
}

// A node is a Kubernetes node with everything that it writes in dir.
type node struct {
	dir, programs, logs string
}

// run starts the node, runs the command on it, and takes it down. It returns the exit code of the
// command, and an error if the host could not be prepared or restored.
func (n *node) run(o options, command []string) (code int, err error) {
	started := time.Now()
	if n.programs, err = filepath.Abs(n.programs); err != nil {
		return 0, err
	}
	images := filepath.Join(n.dir, "images")
	if err := writeImages(images, o); err != nil {
		return 0, errors.Join(err, os.RemoveAll(n.dir))
	}
	restore, err := saveSettings()
	if err != nil {
		return 0, errors.Join(err, os.RemoveAll(n.dir))
	}
	cgroup := "/" + filepath.Base(n.dir)
	err = makeCgroups(cgroup)
	if err == nil {
		fmt.Fprintf(os.Stderr, "node: images made in %.1f s\n", time.Since(started).Seconds())
		code, err = n.start(images, cgroup, command)
	}
	err = errors.Join(err, restore(), removeCgroups(cgroup), n.remove())
	fmt.Fprintf(os.Stderr, "node: %.1f s in all\n", time.Since(started).Seconds())
	return code, err
}

// start runs node.sh as the first process of new namespaces, until the command has ended or this
// program is told to stop.
func (n *node) start(images, cgroup string, command []string) (int, error) {
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("bash", append([]string{"-c", script, "node.sh"}, command...)...)
	cmd.Env = append(os.Environ(), "NODE_DIR="+n.dir, "NODE_PROGRAMS="+n.programs, "NODE_IMAGES="+images, "NODE_CGROUP="+cgroup, "NODE_WD="+wd)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(stop)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the namespaces needs root and Linux: %w", err)
	}
	go func() {
		<-stop
		// As it is the first process, the kernel ends all others with it.
		_ = cmd.Process.Kill()
	}()
	err = cmd.Wait()
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

// kernelSettings are what the kubelet and kube-proxy change, beyond their namespaces.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// saveSettings returns a function that restores the kernel settings as they are now.
func saveSettings() (restore func() error, err error) {
	saved := make(map[string][]byte)
	for _, name := range kernelSettings {
		path := filepath.Join("/proc/sys", name)
		if saved[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return func() (err error) {
		for path, value := range saved {
			if now, _ := os.ReadFile(path); string(now) != string(value) {
				err = errors.Join(err, os.WriteFile(path, value, 0o644))
			}
		}
		return err
	}, nil
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
