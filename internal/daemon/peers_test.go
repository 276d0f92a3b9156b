package daemon

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/slidegate/slidegate/test/servers"
)

// TestPeers lets a DNS server say how many instances there are, before and while Redis is away.
// The share of local follows: at once to a larger number, and while Redis is away to no smaller
// one.
func TestPeers(t *testing.T) {
	const name = "slidegate-peers.default.svc.cluster.local"
	dns, server := servers.StartDNS(t), servers.StartRedis(t)
	set := func(n byte) {
		var all []netip.Addr
		for i := range n {
			all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, i + 1}), netip.AddrFrom16([16]byte{0: 0xfd, 15: i + 1}))
		}
		dns.Set(name, all...)
	}
	set(4)
	s := testSettings(t)
	s.Rules.Path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, s.Rules.Path, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 20}}]\n")
	onRedis(t, &s, server.Addr())
	s.Store.Replicas, s.Store.Peers, s.Store.PeersInterval = 2, name, time.Millisecond
	r := start(t, s, func(o *Options) { o.Resolver = dns.Resolver() })
	r.wantPeers(4, "4 instances by "+name)
	r.wantMetrics("slidegate_store_peers_errors_total 0")

	server.Stop()
	passed := func(key string) (n int) {
		t.Helper()
		for range 10 {
			out, err := r.ask(fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"%s"}]}]}`, key))
			if err != nil {
				t.Fatal(err)
			}
			if out.GetOverallCode() == rlsv3.RateLimitResponse_OK {
				n++
			}
		}
		return n
	}
	if got := passed("x"); got != 5 {
		t.Errorf("one of four admits %d of 20, want 5", got)
	}
	set(10)
	waitFor(t, "ten instances", func() bool { return strings.Contains(r.health(), "10 instances") })
	if got := passed("y"); got != 2 {
		t.Errorf("one of ten admits %d of 20, want 2", got)
	}
	set(1)
	before := dns.Answers()
	waitFor(t, "a smaller answer", func() bool { return dns.Answers() > before+6 })
	r.wantPeers(10, "10 instances by "+name)
	if got := passed("x"); got != 0 {
		t.Errorf("the instance admitted %d for a key that had its share", got)
	}
	if got := r.logs.FilterMessage("the number of instances that share the limits has changed").Len(); got != 2 {
		t.Errorf("%d lines about the number, want 2: 2 to 4 at the start, and 4 to 10", got)
	}
}

// TestPeersWithoutAnswer starts while the name has no answer. store.replicas is the number until
// it has one, and the last number stays when there is none again.
func TestPeersWithoutAnswer(t *testing.T) {
	dns := servers.StartDNS(t)
	s := testSettings(t)
	onRedis(t, &s, servers.Redis(t))
	s.Store.Replicas, s.Store.Peers, s.Store.PeersInterval = 2, "peers", time.Millisecond
	r := start(t, s, func(o *Options) { o.Resolver = dns.Resolver() })
	r.wantPeers(2, "2 instances by peers; the last known number: no answer since 20")
	warned := r.logs.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet("store.peers has no answer; the last known number of instances stays").All()
	if len(warned) != 1 || warned[0].ContextMap()["name"] != "peers" || warned[0].ContextMap()["instances"] != int64(2) {
		t.Errorf("got the warnings %v, want one with the name and the number", warned)
	}
	dns.Set("peers", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"))
	r.waitLog("store.peers has an answer again")
	waitFor(t, "three instances", func() bool { return strings.Contains(r.health(), "peers: 3 instances by peers\n") })
	dns.Refuse(dnsmessage.TypeA, dnsmessage.RCodeServerFailure)
	waitFor(t, "no answer", func() bool { return strings.Contains(r.health(), "no answer since") })
	r.wantPeers(3, "3 instances by peers; the last known number: no answer since 20")
}

// TestReplicasWithoutPeers: the metric has the number of the setting, and the health page does
// not mention it.
func TestReplicasWithoutPeers(t *testing.T) {
	s := testSettings(t)
	onRedis(t, &s, servers.Redis(t))
	s.Store.Replicas = 7
	r := start(t, s)
	r.wantMetrics("slidegate_store_replicas 7", "slidegate_store_peers_errors_total 0")
	if page := r.health(); strings.Contains(page, "peers") {
		t.Errorf("/healthcheck without store.peers:\n%s", page)
	}
}

// health returns /healthcheck.
func (r *testRun) health() string {
	r.t.Helper()
	_, page := get(r.t, "http://"+r.HTTP+"/healthcheck")
	return page
}

// wantPeers checks the number of instances, and how the line of /healthcheck begins.
func (r *testRun) wantPeers(n int, line string) {
	r.t.Helper()
	r.wantMetrics(fmt.Sprintf("slidegate_store_replicas %d", n))
	if page := r.health(); !strings.Contains(page, "\npeers: "+line) {
		r.t.Errorf("/healthcheck lacks %q:\n%s", line, page)
	}
}
