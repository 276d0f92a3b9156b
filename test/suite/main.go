// Command suite runs every test of the project with the race detector, on behalf of make test. It
// ends with the slowest tests. If a test fails, the failed tests come first, each with its seed, the
// load of the machine and the command that repeats it. Under CI=true a skipped test is a failure.
//
// The arguments are the folders of the other modules. The environment variables PKG and RUN choose one
// folder and the tests there, such as PKG=internal/daemon RUN='^TestLeaks$'.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
)

// flags are those of every go test. The tests of cmd/rls would compile every package once more with
// the profile. With -trimpath clones share what is compiled. make lint vets, and no debugger reads
// these programs.
var flags = []string{"-json", "-pgo=off", "-vet=off", "-trimpath", "-ldflags=-s -w", "-race", "-count=1", "-timeout=30m"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lanes := plan(os.Getenv("PKG"), os.Getenv("RUN"), os.Args[1:])
	dir, err := build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(2)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var (
		all   results
		lines = make(chan event, 1024)
		wg    sync.WaitGroup
		errs  = make([]error, len(lanes))
	)
	for i, lane := range lanes {
		wg.Go(func() { errs[i] = lane.run(ctx, lines) })
	}
	go func() {
		wg.Wait()
		close(lines)
	}()
	for e := range lines {
		if line := all.add(e); line != "" {
			fmt.Println(line)
		}
	}
	err = errors.Join(errs...)
	load, _ := os.ReadFile("/proc/loadavg") // Linux has it; elsewhere the load is not printed
	all.print(os.Stdout, fmt.Sprintf("load %s, %d cores", cmp.Or(strings.TrimSpace(string(load)), "unknown"), runtime.NumCPU()))
	if err != nil {
		fmt.Println("suite:", err)
	}
	if err != nil || all.bad(os.Getenv("CI") == "true") {
		stop()
		_ = os.RemoveAll(dir) // if removing fails, temporary files are left
		os.Exit(1)
	}
}

// build builds the programs that tests start, once for all packages: see process.Build. It returns
// their directory.
func build(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "suite")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-pgo=off", "-trimpath", "-ldflags=-w", "-o", dir, "./cmd/rls", "./test/upstream", "./test/customers")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return dir, fmt.Errorf("building what tests start: %w", err)
	}
	return dir, os.Setenv("SLIDEGATE_TEST_BUILT", dir)
}

// A lane is calls of go test, one after the other.
type lane []call

// A call is a go test in a folder.
type call struct {
	dir  string
	args []string
}

// plan returns the lanes that run at the same time: this module, and the other modules.
func plan(pkg, run string, modules []string) []lane {
	if pkg != "" {
		return []lane{{{pkg, []string{"-run", cmp.Or(run, "."), "."}}}}
	}
	var others lane
	for _, dir := range modules {
		args := []string{"./..."}
		if dir == "test/simulate" {
			args = append([]string{"-race=false"}, args...) // it would run ten times as long, and runs on one core
		}
		others = append(others, call{dir, args})
	}
	// Those that take longest come first, so that none runs alone at the end. Tests wait for servers
	// more than they compute.
	own := []string{
		"-p=4", "-parallel=4", "./internal/daemon", "./test/serving", "./test/limits", "./test/tiers", "./test/monitoring",
		"./test/replay", "./test/outage", "./pkg/window/redisstore", "./test/authorization", "./...",
	}
	return []lane{{{".", own}}, others}
}

// run runs the calls and sends their events.
func (l lane) run(ctx context.Context, events chan<- event) error {
	var errs []error
	for _, c := range l {
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-C", c.dir}, flags...), c.args...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		decode(out, events)
		var exit *exec.ExitError
		// A test that failed is among the results.
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			errs = append(errs, fmt.Errorf("go test in %s: %w", c.dir, err))
		}
	}
	return errors.Join(errs...)
}

// decode sends the events of a go test. Lines that are no events are what a build printed.
func decode(out io.Reader, events chan<- event) {
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				e = event{Action: "build-output", Output: line}
			}
			events <- e
		}
		if err != nil {
			return
		}
	}
}
