package daemon

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
)

// node is the node of the tests.
const node = "envoy-ratelimit"

// fromXDS returns settings with rules from an xDS server.
func fromXDS(t *testing.T, address string) settings.Settings {
	t.Helper()
	s := testSettings(t)
	s.Tiers.Source = settings.TiersNone
	s.Rules.Source = settings.RulesXDS
	s.Rules.XDS.Address = settings.Address(address)
	s.Rules.XDS.NodeID = node
	xdsBackoff, xdsMaxBackoff = 10*time.Millisecond, 50*time.Millisecond
	return s
}

// perHour returns the rules of a domain with one limit per hour for every value of a key.
func perHour(domain, key string, limit uint32) *ratelimitv3.RateLimitConfig {
	return &ratelimitv3.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: key, RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_HOUR, RequestsPerUnit: limit},
	}}}
}

// limitOf asks without spending. It returns the limit for a new value of the key, or -1 without
// a limit.
func (r *testRun) limitOf(domain, key string) int {
	r.t.Helper()
	out, err := r.ask(fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [{"key": %q, "value": "v"}], "hits_addend": 0}]}`, domain, key))
	if err != nil {
		r.t.Fatal(err)
	}
	if limit := out.GetStatuses()[0].GetCurrentLimit(); limit != nil {
		return int(limit.GetRequestsPerUnit())
	}
	return -1
}

func postJSON(t *testing.T, address, body string) (int, string) {
	t.Helper()
	resp, err := http.Post("http://"+address+"/json", "application/json", strings.NewReader(body)) //nolint:noctx // the test ends
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (r *testRun) wantLimits(domain, key string, want int) {
	r.t.Helper()
	if got := r.limitOf(domain, key); got != want {
		r.t.Errorf("%s, %s: limit %d, want %d", domain, key, got, want)
	}
}

// TestRulesOfAnXDSServer: the first rules, a domain that is gone, no rules, rules that
// cannot be used, and good ones again.
func TestRulesOfAnXDSServer(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 3), perHour("b", "k", 5))
	r := start(t, fromXDS(t, m.Address()))
	r.wantLimits("a", "k", 3)
	r.wantLimits("b", "k", 5)
	r.wantMetrics(`slidegate_config_reloads_total{result="loaded"} 1`, "slidegate_xds_connected 1")

	m.WaitAccepted(m.Set(node, perHour("b", "k", 6)))
	r.wantLimits("b", "k", 6)
	r.wantLimits("a", "k", -1)

	m.WaitAccepted(m.Set(node))
	r.wantLimits("b", "k", -1)

	m.WaitAccepted(m.Set(node, perHour("b", "k", 7)))
	n := len(m.Requests())
	m.Set(node, &ratelimitv3.RateLimitConfig{Name: "b", Domain: "b", Descriptors: []*ratelimitv3.RateLimitDescriptor{{
		Key: "k", RateLimit: &ratelimitv3.RateLimitPolicy{RequestsPerUnit: 1},
	}}})
	reason := m.WaitRefused(n)
	if want := `xds b: descriptors[k]: unknown unit "UNKNOWN", expected one of second, minute, hour, day, week, month, year`; reason != want {
		t.Errorf("the reason of the NACK is\n%s\nwant\n%s", reason, want)
	}
	r.wantLimits("b", "k", 7)
	r.wantMetrics(`slidegate_config_reloads_total{result="refused"} 1`, "slidegate_config_broken 1")
	if _, page := get(t, "http://"+r.Admin+"/rlconfig"); !strings.Contains(page, "unknown unit") || !strings.Contains(page, "xds "+m.Address()) {
		t.Errorf("/rlconfig says\n%s", page)
	}

	m.WaitAccepted(m.Set(node, perHour("b", "k", 8)))
	r.wantLimits("b", "k", 8)
	r.wantMetrics(`slidegate_config_reloads_total{result="refused"} 1`, "slidegate_config_broken 0")
}

// TestDuplicateDomainOfAnXDSServer: two resources of one domain are refused, and joined
// with rules.merge_domains.
func TestDuplicateDomainOfAnXDSServer(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 3))
	r := start(t, fromXDS(t, m.Address()))
	other := perHour("a", "other", 4)
	other.Name = "a2"
	n := len(m.Requests())
	m.Set(node, perHour("a", "k", 5), other)
	reason := m.WaitRefused(n)
	if want := `xds a2: a second domain "a", the first is in xds a: join them, or set rules.merge_domains`; reason != want {
		t.Errorf("the reason of the NACK is\n%s\nwant\n%s", reason, want)
	}
	r.wantLimits("a", "k", 3)

	s := fromXDS(t, m.Address())
	s.Rules.MergeDomains = true
	merging := start(t, s)
	merging.wantLimits("a", "k", 5)
	merging.wantLimits("a", "other", 4)
}

// TestOtherNode: another node gets nothing.
func TestOtherNode(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 3))
	s := fromXDS(t, m.Address())
	s.Rules.XDS.NodeID, s.DropIn.WithoutRules = "other", true
	s.DropIn.NodeMetadata = []string{"zone=z1", "empty=", "eq=a=b"}
	s.DropIn.XDSHeaders = []settings.Secret{"x-token=s3cret=", "x-zone=z"}
	r := start(t, s)
	waitFor(t, "a stream", func() bool { return len(m.Requests()) > 0 })
	if _, err := r.ask(`{"domain": "a", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}`); status.Code(err) != codes.Unknown {
		t.Errorf("without rules: got %v, want UNKNOWN", err)
	}
	request := m.Requests()[0]
	if got := request.GetNode().GetId(); got != "other" {
		t.Errorf("node id %q", got)
	}
	for name, want := range map[string]string{"zone": "z1", "empty": "", "eq": "a=b"} {
		if got := request.GetNode().GetMetadata().GetFields()[name].GetStringValue(); got != want {
			t.Errorf("metadata %s: got %q, want %q", name, got, want)
		}
	}
	if request.GetVersionInfo() != "" || request.GetResponseNonce() != "" || len(request.GetResourceNames()) > 0 {
		t.Errorf("the first request of a stream is %v", request)
	}
	headers := m.Headers()[0]
	if got := headers.Get("x-token"); len(got) != 1 || got[0] != "s3cret=" {
		t.Errorf("x-token: %q", got)
	}
	if got := headers.Get("x-zone"); len(got) != 1 || got[0] != "z" {
		t.Errorf("x-zone: %q", got)
	}
	m.WaitAccepted(m.Set("other", perHour("a", "k", 9)))
	r.wantLimits("a", "k", 9)
	for _, line := range r.logs.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "s3cret") {
			t.Errorf("the log has a secret: %s", text)
		}
	}
}

// TestUnknownFieldsOfAnXDSServer: a field that a later version adds is ignored, which the
// log says.
func TestUnknownFieldsOfAnXDSServer(t *testing.T) {
	m := servers.StartXDS(t)
	c := perHour("a", "k", 3)
	c.Descriptors[0].RateLimit.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // field 99
	m.Set(node, c, perHour("b", "k", 4))
	r := start(t, fromXDS(t, m.Address()))
	r.wantLimits("a", "k", 3)
	warnings := r.logs.FilterMessage("configuration").All()
	if len(warnings) != 1 || warnings[0].ContextMap()["problem"] != "xds a: has fields that this version of rls does not know and ignores" {
		t.Errorf("warnings: %v", warnings)
	}
}

// TestXDSServerRestarts: its versions begin at 1 again, with other rules. The rules stay
// while it is away.
func TestXDSServerRestarts(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 3))
	r := start(t, fromXDS(t, m.Address()))
	m.WaitAccepted("1")
	m.Stop()
	r.waitLog("no connection to the xDS server, the rules stay as they are")
	r.wantLimits("a", "k", 3)
	waitFor(t, "the state", func() bool {
		code, page := get(t, "http://"+r.HTTP+"/healthcheck")
		return code == 200 && strings.Contains(page, `rules: version "1", not connected to `+m.Address())
	})
	r.wantMetrics("slidegate_xds_connected 0")
	m.Start()
	m.WaitAccepted(m.Set(node, perHour("a", "k", 4)))
	r.wantLimits("a", "k", 4)
	if first := m.Requests()[0]; first.GetVersionInfo() != "" || first.GetResponseNonce() != "" {
		t.Errorf("the first request of the new stream is %v", first)
	}
	// The same rules again, in a process that was restarted.
	m.Stop()
	m.Start()
	m.Set(node, perHour("a", "k", 4))
	m.WaitAccepted("1")
	r.waitLog("the xDS server sent the same rules again")
}

// TestXDSServerUnavailableAtStart: the ports stay closed until there are
// rules, and the end of the process ends the wait. Without it calls fail until then.
func TestXDSServerUnavailableAtStart(t *testing.T) {
	m := servers.StartXDS(t)
	m.Stop()
	s := fromXDS(t, m.Address())
	s.DropIn.WithoutRules = true
	r := start(t, s)
	_, err := r.ask(`{"domain": "a", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}`)
	if got := status.Convert(err); got.Code() != codes.Unknown || got.Message() != "no rate limit configuration loaded" {
		t.Errorf("before the first rules: %v", err)
	}
	if code, body := postJSON(t, r.HTTP, `{"domain": "a", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}`); code != 400 || strings.TrimSpace(body) != "no rate limit configuration loaded" {
		t.Errorf("/json before the first rules: %d %q", code, body)
	}
	if code, _ := get(t, "http://"+r.HTTP+"/healthcheck"); code != 200 {
		t.Errorf("/healthcheck before the first rules: %d", code)
	}
	m.Start()
	m.WaitAccepted(m.Set(node, perHour("a", "k", 4)))
	r.wantLimits("a", "k", 4)
	r.waitLog("rules active")
	r.stop()
	waitFor(t, "the end of the stream", func() bool { return m.Streams() == 0 })
	m.Stop()

	s.DropIn.WithoutRules = false
	defer func(d time.Duration) { stillWaiting = d }(stillWaiting)
	stillWaiting = 20 * time.Millisecond
	waits := startWaiting(t, s)
	waits.waitLog("waiting for the first rules of the xDS server: the ports stay closed until then")
	waits.waitLog("still waiting for the first rules of the xDS server: the ports stay closed; check the server and rules.xds.node_id")
	waits.waitLog("no connection to the xDS server, the rules stay as they are")
	waits.stop()
	if err := <-waits.done; err != nil {
		t.Errorf("SIGTERM while rls waits: %v", err)
	}
	if len(waits.ready) > 0 {
		t.Error("the ports are open without rules")
	}

	waits = startWaiting(t, s)
	m.Start()
	n := len(m.Requests())
	m.Set(node, perHour("a", "", 4))
	m.WaitRefused(n)
	if len(waits.ready) > 0 {
		t.Error("the ports are open with rules that were refused")
	}
	m.Set(node, perHour("a", "k", 5))
	waits.Running = <-waits.ready
	waits.wantLimits("a", "k", 5)
	waits.wantMetrics(`slidegate_config_reloads_total{result="loaded"} 1`, "slidegate_config_broken 0")
	waits.stop()
	if err := <-waits.done; err != nil {
		t.Error(err)
	}
	waitFor(t, "the end of the stream", func() bool { return m.Streams() == 0 })
}

// TestXDSServerTLS: TLS 1.3 with a certificate of the client, and both replaced while the
// connection lasts.
func TestXDSServerTLS(t *testing.T) {
	a := servers.NewAuthority(t)
	m := servers.StartXDSTLS(t, a)
	m.Set(node, perHour("a", "k", 3))
	s := fromXDS(t, m.Address())
	x := &s.Rules.XDS.TLS
	x.Enabled = true
	x.CAFile, x.CertFile, x.KeyFile = a.ClientFiles()
	r := start(t, s)
	r.wantLimits("a", "k", 3)

	if err := a.Renew(); err != nil {
		t.Fatal(err)
	}
	m.WaitAccepted(m.Set(node, perHour("a", "k", 4))) // the stream goes on
	r.wantLimits("a", "k", 4)
	m.Stop()
	m.Start() // with an authority that has not signed the earlier certificates
	m.WaitAccepted(m.Set(node, perHour("a", "k", 5)))
	r.wantLimits("a", "k", 5)

	s.Rules.XDS.TLS.CertFile, s.Rules.XDS.TLS.KeyFile, s.DropIn.WithoutRules = "", "", true
	without := start(t, s)
	without.waitLog("no connection to the xDS server, the rules stay as they are")
	x.CertFile, x.KeyFile, x.ServerName = "", "", "other.example"
	named := start(t, s)
	waitFor(t, "a refused name", func() bool {
		for _, line := range named.logs.FilterMessage("no connection to the xDS server, the rules stay as they are").All() {
			if strings.Contains(fmt.Sprint(line.ContextMap()["error"]), "other.example") {
				return true
			}
		}
		return false
	})
}

// TestTiersBesideAnXDSServer: a tiers file is read again without asking the server, and a
// broken one does not keep rules away.
func TestTiersBesideAnXDSServer(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 3))
	s := fromXDS(t, m.Address())
	s.Tiers.Source = settings.TiersFile
	s.Tiers.Path = t.TempDir() + "/tiers.yaml"
	put := func(text string) {
		write(t, s.Tiers.Path, text)
	}
	put("tiers: [free]\ndefault: free\n")
	r := start(t, s)
	put("tiers: [free\n")
	r.reload <- os.Interrupt
	waitFor(t, "the refusal", func() bool { return r.logs.FilterLevelExact(zap.ErrorLevel).Len() == 1 })
	m.WaitAccepted(m.Set(node, perHour("a", "k", 4)))
	r.wantLimits("a", "k", 4)
	r.wantMetrics("slidegate_config_broken 1")
	put("tiers: [free, pro]\ndefault: pro\n")
	r.reload <- os.Interrupt
	waitFor(t, "the tiers", func() bool {
		_, page := get(t, "http://"+r.Admin+"/metrics")
		return strings.Contains(page, "\nslidegate_config_broken 0\n")
	})
	r.wantLimits("a", "k", 4)
}

// TestUpdatesUnderLoad: ten updates a second and more, while calls are answered. No call fails,
// and the last update counts.
func TestUpdatesUnderLoad(t *testing.T) {
	m := servers.StartXDS(t)
	m.Set(node, perHour("a", "k", 1000))
	r := start(t, fromXDS(t, m.Address()))
	client := rlsv3.NewRateLimitServiceClient(dial(t, r.GRPC[0]))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	calls := 0
	go func() {
		defer close(failed)
		in := &rlsv3.RateLimitRequest{Domain: "a", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
			Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}, HitsAddend: wrapperspb.UInt64(0),
		}}}
		for ctx.Err() == nil {
			out, err := client.ShouldRateLimit(t.Context(), in)
			if err != nil || out.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() < 1000 {
				failed <- fmt.Errorf("%v, %w", out, err)
				return
			}
			calls++
		}
	}()
	last := ""
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range uint32(30) {
		configs := []*ratelimitv3.RateLimitConfig{perHour("a", "k", 1000+i)}
		for j := range 20 {
			configs = append(configs, perHour(fmt.Sprintf("d%d-%d", i, j), "k", i))
		}
		last = m.Set(node, configs...)
		<-pace.C
	}
	m.WaitAccepted(last)
	cancel()
	if err := <-failed; err != nil {
		t.Errorf("a call failed: %v", err)
	}
	if calls == 0 {
		t.Error("no call was answered")
	}
	r.wantLimits("a", "k", 1029)
}
