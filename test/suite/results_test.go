package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFailuresComeFirst: a test that failed and one that a crash ended are at the top, with their
// seeds and the commands that repeat them.
func TestFailuresComeFirst(t *testing.T) {
	const stream = `
{"Action":"run","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestRandom"}
{"Action":"output","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestRandom/7","Output":"    a_test.go:3: got 1\n"}
{"Action":"output","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestRandom","Output":"    a_test.go:9: SLIDEGATE_TEST_SEED=7\n"}
{"Action":"fail","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestRandom/7","Elapsed":1.5}
{"Action":"fail","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestRandom","Elapsed":1.6}
{"Action":"pass","Package":"github.com/slidegate/slidegate/pkg/window","Test":"TestQuick","Elapsed":0.1}
{"Action":"fail","Package":"github.com/slidegate/slidegate/pkg/window","Elapsed":2}
{"Action":"output","Package":"github.com/slidegate/slidegate/test/console","Test":"TestPages","Output":"panic: no\n"}
{"Action":"output","Package":"github.com/slidegate/slidegate/test/console","Output":"exit status 2\n"}
{"Action":"fail","Package":"github.com/slidegate/slidegate/test/console","Elapsed":1}
# not JSON: a build that failed
`
	events := make(chan event, 100)
	decode(strings.NewReader(strings.TrimPrefix(stream, "\n")), events)
	close(events)
	var r results
	for e := range events {
		r.add(e)
	}
	if !r.bad(false) {
		t.Error("the run passed")
	}
	var b strings.Builder
	r.print(&b, "load 8")
	const want = `
FAILED, with load 8:
  TestRandom in github.com/slidegate/slidegate/pkg/window; repeat it with
    SLIDEGATE_TEST_SEED=7 PKG=pkg/window RUN='^TestRandom$' make test
  TestPages in github.com/slidegate/slidegate/test/console; repeat it with
    PKG=test/console RUN='^TestPages$' make test

# not JSON: a build that failed

=== TestRandom in github.com/slidegate/slidegate/pkg/window
    a_test.go:9: SLIDEGATE_TEST_SEED=7

=== TestRandom/7 in github.com/slidegate/slidegate/pkg/window
    a_test.go:3: got 1

=== TestPages in github.com/slidegate/slidegate/test/console
panic: no

=== github.com/slidegate/slidegate/test/console, outside its tests
exit status 2

The 10 slowest tests:
    1.6 s  TestRandom in github.com/slidegate/slidegate/pkg/window
    0.1 s  TestQuick in github.com/slidegate/slidegate/pkg/window
    0.0 s  TestPages in github.com/slidegate/slidegate/test/console
1 passed, 3 failed, 0 skipped
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestSkipsFailInCI: a run that skipped a test, or ran none, is no proof.
func TestSkipsFailInCI(t *testing.T) {
	var r results
	if !r.bad(false) {
		t.Error("no test ran, and the run passed")
	}
	r.add(event{Action: "pass", Package: "p", Test: "A"})
	r.add(event{Action: "skip", Package: "p", Test: "B"})
	if r.bad(false) || !r.bad(true) {
		t.Errorf("a skipped test: bad %v, under CI %v", r.bad(false), r.bad(true))
	}
}
