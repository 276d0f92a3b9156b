package transport

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// h2specAtOnce is how many cases run at the same time. Most of their time they wait for
// a server that sends nothing.
const h2specAtOnce = 32

// h2specTimeout is how long a case waits for an answer. It is far more than a
// server needs; a case that fails takes all of it.
const h2specTimeout = 5 * time.Second

// An h2specCase is one case by the number that h2spec prints.
type h2specCase struct {
	id   string // such as http2/6.5.3/1
	test *spec.TestCase
}

// h2specCases returns the cases of a group and of those in it.
func h2specCases(g *spec.TestGroup) []h2specCase {
	var all []h2specCase
	for i, c := range append(g.Tests[:len(g.Tests):len(g.Tests)], g.StrictTests...) {
		all = append(all, h2specCase{id: fmt.Sprintf("%s/%d", g.ID(), i+1), test: c})
	}
	for _, inner := range g.Groups {
		all = append(all, h2specCases(inner)...)
	}
	return all
}

// h2specCalls are the cases that need a long answer, or an open stream whose answer cannot be
// sent. For them asCalls changes the requests to calls.
var h2specCalls = map[string]bool{
	"generic/2/2":   true,
	"generic/2/3":   true,
	"http2/5.1.2/1": true,
	"http2/6.5.3/1": true,
	"http2/6.9.1/1": true,
	"http2/6.9.1/3": true,
	"http2/6.9.2/1": true,
	"http2/6.9.2/2": true,
}

// run returns what h2spec finds wrong with the server, nil if nothing, or
// spec.ErrSkipped.
func (c h2specCase) run(o *config.Config) error {
	conn, err := spec.Dial(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	return c.test.Run(o, conn)
}

// runH2spec starts rls with a transport, and with TLS if there is an authority. It runs all
// cases, the strict ones too, and returns their results.
func runH2spec(t *testing.T, name string, authority *servers.Authority) ([]h2specCase, []error) {
	t.Helper()
	var cases []h2specCase
	for _, g := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		cases = append(cases, h2specCases(g)...)
	}
	rls := edge.RLS(t, edge.RLSOptions{TLS: authority, Env: map[string]string{"SLIDEGATE_GRPC_TRANSPORT": name}})
	direct := h2specConfig(t, rls.GRPC())
	dial := func() (net.Conn, error) { return net.Dial("tcp", rls.GRPC()) }
	if authority != nil {
		c, err := authority.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		c.NextProtos = []string{"h2"}
		dial = func() (net.Conn, error) { return tls.Dial("tcp", rls.GRPC(), c) }
		direct.TLS = true
		direct.Insecure = true // it cannot be told whom to trust
		_, direct.CertFile, direct.CertKeyFile = authority.ClientFiles()
	}
	calls := h2specConfig(t, asCalls(t, dial))

	found := make([]error, len(cases))
	slots := make(chan struct{}, h2specAtOnce)
	var wait sync.WaitGroup
	for i, c := range cases {
		o := direct
		if h2specCalls[c.id] {
			o = calls
		}
		slots <- struct{}{}
		wait.Go(func() {
			found[i] = c.run(o)
			<-slots
		})
	}
	wait.Wait()
	return cases, found
}

// h2specConfig returns the configuration of h2spec for an address.
func h2specConfig(t *testing.T, address string) *config.Config {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	o := &config.Config{Host: host, Path: healthv1.Health_Check_FullMethodName, MaxHeaderLen: 4000, Timeout: h2specTimeout, Strict: true}
	if o.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestH2spec runs h2spec against rls, over plain text and over TLS with certificates
// of both.
func TestH2spec(t *testing.T) {
	for name, authority := range map[string]*servers.Authority{"plain": nil, "tls": servers.NewAuthority(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases, found := runH2spec(t, lean, authority)
			passed := 0
			for i, c := range cases {
				reason, excepted := h2specExceptions[c.id]
				switch err := found[i]; {
				case err == nil && excepted:
					t.Errorf("%s passes, but is an exception: %s", c.id, reason)
				case err == nil:
					passed++
				case excepted:
					t.Logf("%s (%s) is an exception: %s", c.id, c.test.Desc, reason)
				case errors.Is(err, spec.ErrSkipped):
					t.Errorf("%s: %s: h2spec skips it", c.id, c.test.Desc)
				default:
					t.Errorf("%s: %s\n%s\n%v", c.id, c.test.Desc, c.test.Requirement, err)
				}
			}
			for id := range h2specExceptions {
				if !slices.ContainsFunc(cases, func(c h2specCase) bool { return c.id == id }) {
					t.Errorf("%s is an exception, but no case", id)
				}
			}
			t.Logf("%d cases, %d passed, %d exceptions", len(cases), passed, len(h2specExceptions))
		})
	}
}

// TestH2specOfStandard logs how many cases grpc-go's server passes, for comparison.
func TestH2specOfStandard(t *testing.T) {
	if !*compare {
		return
	}
	cases, found := runH2spec(t, standard, nil)
	passed := 0
	for i, c := range cases {
		if found[i] == nil {
			passed++
			continue
		}
		t.Logf("%s: %s", c.id, c.test.Desc)
	}
	t.Logf("%d cases, %d passed", len(cases), passed)
}

// compare is a flag, because the comparison proves nothing about rls and takes long:
// most failing cases wait for their timeout.
var compare = flag.Bool("standard", false, "run h2spec on grpc-go's server, too, and say what it passes")
