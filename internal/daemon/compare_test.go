package daemon

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
	ports "github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// compared returns the lines of compare metrics of a process.
func (r *testRun) compared() string {
	r.t.Helper()
	_, page := get(r.t, "http://"+r.Admin+"/metrics")
	return strings.Join(regexp.MustCompile(`(?m)^slidegate_compare_.*$`).FindAllString(page, -1), "\n")
}

// freeAddress returns an address where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := ports.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return ports.Address(port)
}

// TestCompare compares with another Slidegate, over gRPC and /json, with TLS and without.
func TestCompare(t *testing.T) { onEachTransport(t, testCompare) }

func testCompare(t *testing.T, s settings.Settings) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secure), func(t *testing.T) {
			theirs, ours := s, s
			if secure {
				a := servers.NewAuthority(t)
				theirs.GRPC.TLS.ClientCAFile, theirs.GRPC.TLS.CertFile, theirs.GRPC.TLS.KeyFile = a.ServerFiles()
				ours.Compare.TLS.Enabled = true
				ours.Compare.TLS.CAFile, ours.Compare.TLS.CertFile, ours.Compare.TLS.KeyFile = a.ClientFiles()
			}
			old := start(t, theirs)
			ours.Compare.Address = old.GRPC[0]
			r := start(t, ours)
			for range 100 {
				if _, err := r.ask(demo); err != nil {
					t.Fatal(err)
				}
			}
			const allowed = `slidegate_compare_total{domain="edge",ours="ok",reason="",rule="per-key",theirs="ok"} 100`
			// Calls that are on their way together may arrive in another order.
			waitFor(t, "the allowed calls are compared", func() bool { return r.compared() == allowed })
			resp, err := http.Post("http://"+r.HTTP+"/json", "application/json", strings.NewReader(demo))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("/json: %s", resp.Status)
			}
			want := allowed + "\n" + `slidegate_compare_total{domain="edge",ours="over_limit",reason="",rule="per-key",theirs="over_limit"} 1`
			waitFor(t, "all calls are compared", func() bool { return r.compared() == want })
			old.wantMetrics(`slidegate_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 100`)
			r.wantMetrics(`slidegate_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 100`)
		})
	}
}

// TestCompareInACircle: two services that compare with each other do not call each other for
// ever.
func TestCompareInACircle(t *testing.T) { onEachTransport(t, testCompareInACircle) }

func testCompareInACircle(t *testing.T, s settings.Settings) {
	first, second := s, s
	first.Compare.Address = freeAddress(t)
	a := start(t, first)
	second.GRPC.Address = []settings.Address{settings.Address(first.Compare.Address)}
	second.Compare.Address = a.GRPC[0]
	b := start(t, second)
	if _, err := a.ask(demo); err != nil {
		t.Fatal(err)
	}
	want := `slidegate_compare_total{domain="edge",ours="ok",reason="",rule="per-key",theirs="ok"} 1`
	waitFor(t, "the call is compared", func() bool { return a.compared() == want })
	if got := b.compared(); got != "" {
		t.Errorf("the other service compares again: %s", got)
	}
	a.wantMetrics(`slidegate_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 1`)
	b.wantMetrics(`slidegate_decisions_total{domain="edge",outcome="allowed",rule="per-key"} 1`)
}

// TestCompareWithNothing answers every call while nothing listens at compare.address.
func TestCompareWithNothing(t *testing.T) {
	s := testSettings(t)
	s.Compare.Address = freeAddress(t)
	r := start(t, s)
	for range 20 {
		if _, err := r.ask(demo); err != nil {
			t.Fatal(err)
		}
	}
	want := `slidegate_compare_total{domain="edge",ours="ok",reason="",rule="per-key",theirs="error"} 20`
	waitFor(t, "all calls are compared", func() bool { return r.compared() == want })
	r.waitLog("the other rate-limit service does not answer, and only the comparison stops; check that it runs, and compare.address")
}
