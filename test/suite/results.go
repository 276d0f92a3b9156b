package main

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	module      = "github.com/slidegate/slidegate"
	slowestMost = 10
)

// An event is a line of go test -json, see cmd/test2json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// A test is a test or a subtest. Its zero value is one that has not ended.
type test struct {
	pkg, name string
	action    string // pass, fail or skip
	seconds   float64
	output    strings.Builder
}

// top is the name without those of subtests.
func (t *test) top() string {
	name, _, _ := strings.Cut(t.name, "/")
	return name
}

// results are those of all packages. The zero value is ready to use.
type results struct {
	tests  []*test
	byName map[[2]string]*test
	// failed are the packages that failed, with what they printed outside a test.
	failed []string
	loose  map[string]*strings.Builder
	builds strings.Builder
}

// add takes an event, and returns what to print as it happens.
func (r *results) add(e event) string {
	if r.byName == nil {
		r.byName, r.loose = make(map[[2]string]*test), make(map[string]*strings.Builder)
	}
	switch {
	case e.Action == "build-output":
		r.builds.WriteString(e.Output)
	case e.Package == "":
	case e.Test != "":
		t := r.test(e.Package, e.Test)
		switch e.Action {
		case "output":
			t.output.WriteString(e.Output)
		case "pass", "fail", "skip":
			t.action, t.seconds = e.Action, e.Elapsed
			if e.Action == "pass" {
				t.output = strings.Builder{} // the output of a test that passed is not printed
			}
		}
	case e.Action == "output":
		if r.loose[e.Package] == nil {
			r.loose[e.Package] = new(strings.Builder)
		}
		r.loose[e.Package].WriteString(e.Output)
	case e.Action == "fail":
		r.failed = append(r.failed, e.Package)
		return fmt.Sprintf("FAIL  %s  %.1f s", e.Package, e.Elapsed)
	case e.Action == "pass":
		return fmt.Sprintf("ok    %s  %.1f s", e.Package, e.Elapsed)
	}
	return ""
}

func (r *results) test(pkg, name string) *test {
	key := [2]string{pkg, name}
	t := r.byName[key]
	if t == nil {
		t = &test{pkg: pkg, name: name}
		r.byName[key], r.tests = t, append(r.tests, t)
	}
	return t
}

// count returns how many tests ended so. Tests without an end are those of "".
func (r *results) count(action string) (n int) {
	for _, t := range r.tests {
		if t.action == action {
			n++
		}
	}
	return n
}

// bad reports whether the run failed. strict says that a skipped test is a failure.
func (r *results) bad(strict bool) bool {
	return len(r.failed) > 0 || r.count("fail") > 0 || r.count("") > 0 || strict && r.count("skip") > 0 || r.count("pass") == 0
}

var seedOf = regexp.MustCompile(`SLIDEGATE_TEST_SEED=[0-9]+`)

// print writes the failed tests and how to repeat them, what they printed, the skipped tests, the
// slowest ones and the counts.
func (r *results) print(w io.Writer, load string) {
	if r.bad(false) {
		fmt.Fprintf(w, "\nFAILED, with %s:\n", load)
		for _, t := range r.tests {
			if t.bad() && t.name == t.top() {
				fmt.Fprintf(w, "  %s in %s; repeat it with\n    %s\n", t.name, t.pkg, r.repeat(t))
			}
		}
		for _, pkg := range r.failed {
			if !slices.ContainsFunc(r.tests, func(t *test) bool { return t.pkg == pkg && t.bad() }) {
				fmt.Fprintf(w, "  %s, outside its tests; repeat it with\n    PKG=%s make test\n", pkg, folder(pkg))
			}
		}
		fmt.Fprint(w, "\n", r.builds.String())
		for _, t := range r.tests {
			if t.bad() {
				fmt.Fprintf(w, "\n=== %s in %s\n%s", t.name, t.pkg, t.output.String())
			}
		}
		for _, pkg := range r.failed {
			if out := r.loose[pkg]; out != nil {
				fmt.Fprintf(w, "\n=== %s, outside its tests\n%s", pkg, out)
			}
		}
	}
	for _, t := range r.tests {
		if t.action == "skip" {
			fmt.Fprintf(w, "\nskipped: %s in %s\n%s", t.name, t.pkg, t.output.String())
		}
	}
	fmt.Fprintf(w, "\nThe %d slowest tests:\n", slowestMost)
	for _, t := range r.slowest() {
		fmt.Fprintf(w, "%7.1f s  %s in %s\n", t.seconds, t.name, t.pkg)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.count("pass"), r.count("fail")+r.count(""), r.count("skip"))
}

// bad reports whether the test failed or has not ended.
func (t *test) bad() bool { return t.action == "fail" || t.action == "" }

// slowest returns the tests that took longest, without subtests.
func (r *results) slowest() []*test {
	var tops []*test
	for _, t := range r.tests {
		if t.name == t.top() {
			tops = append(tops, t)
		}
	}
	slices.SortFunc(tops, func(a, b *test) int {
		switch {
		case a.seconds > b.seconds:
			return -1
		case a.seconds < b.seconds:
			return 1
		}
		return strings.Compare(a.pkg+a.name, b.pkg+b.name)
	})
	return tops[:min(len(tops), slowestMost)]
}

// repeat returns the command that repeats a test, with the last seed that it or a subtest printed.
func (r *results) repeat(t *test) string {
	seed := ""
	for _, other := range r.tests {
		if other.pkg == t.pkg && other.top() == t.name {
			if all := seedOf.FindAllString(other.output.String(), -1); len(all) > 0 {
				seed = all[len(all)-1] + " "
			}
		}
	}
	return fmt.Sprintf("%sPKG=%s RUN='^%s$' make test", seed, folder(t.pkg), t.name)
}

// folder returns the folder of a package in the repository.
func folder(pkg string) string {
	return path.Clean(strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"))
}
