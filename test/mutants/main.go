package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutants whose name holds this text")
	list := flag.String("list", "test/mutants/mutants.txt", "the mutants")
	workers := flag.Int("workers", runtime.NumCPU(), "how many to run at once")
	flag.Parse()
	if err := run(*list, *only, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// An outcome of one mutant.
type outcome struct {
	caughtBy string // the first test that failed; empty if none did
	err      error  // the mutant could not be tried
	took     time.Duration
}

func run(list, only string, workers int) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := readList(list)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if strings.Contains(m.name, only) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant's name holds %q", only)
	}
	if err := unbroken(root, chosen); err != nil {
		return err
	}

	outcomes := make([]outcome, len(chosen))
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	for i := range chosen {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			start := time.Now()
			outcomes[i] = try(root, &chosen[i])
			outcomes[i].took = time.Since(start)
			fmt.Println(describe(&chosen[i], &outcomes[i]))
		})
	}
	wg.Wait()
	return judge(chosen, outcomes)
}

// unbroken sees that the tests pass as they are: otherwise they would catch
// everything.
func unbroken(root string, chosen []mutant) error {
	seen := make(map[string]bool)
	var packages []string
	for _, m := range chosen {
		for _, p := range m.packages {
			if !seen[p] {
				seen[p] = true
				packages = append(packages, p)
			}
		}
	}
	out, err := test(root, nil, packages)
	if err != nil {
		return fmt.Errorf("the tests fail without any mutant: %w\n%s", err, out)
	}
	return nil
}

// test runs the tests of packages.
func test(root string, flags, packages []string) ([]byte, error) {
	args := append([]string{"test", "-count=1", "-failfast", "-timeout=6m"}, flags...)
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = root
	return cmd.CombinedOutput()
}

func try(root string, m *mutant) outcome {
	changed, err := m.apply(root)
	if err != nil {
		return outcome{err: err}
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return outcome{err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system's to clean up otherwise
	mutated := filepath.Join(dir, filepath.Base(m.file))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): mutated}})
	if err != nil {
		return outcome{err: err}
	}
	if err := errors.Join(
		os.WriteFile(mutated, changed, 0o600),
		os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600),
	); err != nil {
		return outcome{err: err}
	}
	flags := []string{"-overlay", filepath.Join(dir, "overlay.json")}
	if !m.long {
		flags = append(flags, "-short")
	}
	out, err := test(root, flags, m.packages)
	if err == nil {
		return outcome{}
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		return outcome{err: fmt.Errorf("it does not compile:\n%s", out)}
	}
	by := firstFailure(out)
	if by == "" {
		return outcome{err: fmt.Errorf("go test failed without a failing test:\n%s", out)}
	}
	return outcome{caughtBy: by}
}

// firstFailure finds what noticed in the output of go test: a test, a panic or the
// time limit. It is empty if nothing did, and go test failed for another reason.
func firstFailure(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			return name
		}
	}
	for _, sign := range []string{"panic: test timed out", "panic: ", "fatal error: "} {
		if bytes.Contains(out, []byte(sign)) {
			return strings.TrimSuffix(sign, ": ")
		}
	}
	return ""
}

func describe(m *mutant, o *outcome) string {
	verdict := "caught by " + o.caughtBy
	switch {
	case o.err != nil:
		verdict = "NOT TRIED: " + o.err.Error()
	case o.caughtBy == "" && m.survives != "":
		verdict = "survives: " + m.survives
	case o.caughtBy == "":
		verdict = "SURVIVES"
	case m.survives != "":
		verdict = "CAUGHT by " + o.caughtBy + ", but listed as a survivor"
	}
	return fmt.Sprintf("%-50s %6.1fs  %s", m.name, o.took.Seconds(), verdict)
}

// judge sums up, and is an error where something was not as listed.
func judge(chosen []mutant, outcomes []outcome) error {
	var caught, survived int
	var wrong []string
	for i := range chosen {
		m, o := &chosen[i], &outcomes[i]
		switch {
		case o.err != nil, (o.caughtBy == "") != (m.survives != ""):
			wrong = append(wrong, describe(m, o))
		case o.caughtBy != "":
			caught++
		default:
			survived++
		}
	}
	fmt.Printf("\n%d mutants: %d caught, %d survive for a reason, %d not as listed\n", len(chosen), caught, survived, len(wrong))
	if len(wrong) > 0 {
		return errors.New("\n" + strings.Join(wrong, "\n"))
	}
	return nil
}
