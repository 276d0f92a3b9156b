package ratelimit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
)

// TestBudgets: what Envoy sends before a request and at its end, in descriptors and in the metadata of the call,
// and what remains of 4,000,000,000 micro-dollars after it.
func TestBudgets(t *testing.T) {
	money := rules.Limit{
		Limit:    window.Limit{Hits: 4_000_000_000, Window: time.Hour},
		Currency: "usd", Budget: &rules.Budget{Reserve: 1000, Max: rules.MaxCost, Budget: window.Budget{Hold: time.Minute, PerByte: 2}},
	}
	all := setup{rules: []rules.Rule{{Domain: "edge", Name: "money", Path: []descriptors.Node{{Key: "budget", AnyValue: true}}, Terms: rules.Terms{Limits: []rules.Limit{money}}}}}
	s, _ := all.serve(t)
	const budget = `{"entries":[{"key":"budget","value":"money"}]%s}`
	call := func(hits, stream, end, cost, wire, sent string) *rlsv3.RateLimitResponse {
		t.Helper()
		one := fmt.Sprintf(budget, hits)
		if end != "" {
			one = `{"entries":[{"key":"slidegate","value":"end"}]},` + one
		}
		encoded, err := proto.Marshal(fromJSON(t, `{"domain":"edge","descriptors":[`+one+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		in := unary.Call{Request: string(encoded)}
		for i, value := range map[int]string{adapter.StreamID: stream, adapter.StreamEnd: end, adapter.Cost: cost, adapter.Upstream: wire, adapter.Downstream: sent} {
			in.Kept[i] = adapter.Kept[i].Value(value)
		}
		answer, _, err := s.Handle(t.Context(), window.MayWait, &in, nil)
		var out rlsv3.RateLimitResponse
		if err := errors.Join(err, proto.Unmarshal(answer, &out)); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	for name, tt := range map[string]struct {
		reserve, reserveCost    string // hitsAddend, and x-rls-cost
		settle, cost, wire, out string
		left                    float64
	}{
		"addends":               {reserve: `,"hitsAddend":"500"`, settle: `,"hitsAddend":"321"`, left: 4_000_000_000 - 321},
		"exact text":            {reserveCost: "3000000000", cost: "2000000000.5", left: 2_000_000_000 - 1},
		"nothing is sent":       {wire: "199", left: 4_000_000_000 - 1000},
		"absent, as Envoy says": {reserveCost: "-", cost: "-", wire: "-", out: "-", left: 4_000_000_000 - 1000},
		"no upstream":           {reserve: `,"hitsAddend":"500"`, wire: "0", left: 4_000_000_000},
		"bytes":                 {reserve: `,"hitsAddend":"500"`, wire: "199", out: "120", left: 4_000_000_000 - 240},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ = all.serve(t)
			if out := call(tt.reserve, "a", "", tt.reserveCost, "", ""); out.GetOverallCode() != rlsv3.RateLimitResponse_OK {
				t.Fatalf("the reservation: %v", out)
			}
			call(tt.settle, "a", "via_upstream", tt.cost, tt.wire, tt.out)
			after := call(`,"hitsAddend":"0"`, "", "", "", "", "").GetDynamicMetadata().GetFields()
			if left, reserved := after["remaining"].GetNumberValue(), after["reserved"].GetNumberValue(); left != tt.left || reserved != 0 {
				t.Errorf("%.0f remain, %.0f are reserved, want %.0f and 0", left, reserved, tt.left)
			}
		})
	}
	denied := call("", "b", "", "4000000001", "", "")
	if body := string(denied.GetRawBody()); !strings.Contains(body, "This request costs 4000.000001 USD, more than is ever free under rule money: 4000.00 USD per 1h.") {
		t.Errorf("a cost above the budget: %s", body)
	}
}
