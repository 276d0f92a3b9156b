package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
)

// above returns the series above zero, and the number of all series.
func above(t *testing.T, registry *prometheus.Registry) (values map[string]float64, series int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values = make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			series++
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				values[name] = v
			}
		}
	}
	return values, series
}

func TestTransport(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewTransport(registry)
	_, before := above(t, registry)
	m.Opened()
	m.Opened()
	m.Closed()
	m.Reset(true, http2.ErrCodeNo)
	m.Reset(true, http2.ErrCodeRefusedStream)
	m.Reset(false, http2.ErrCodeCancel)
	m.Reset(false, http2.ErrCodeHTTP11Required)
	for _, made := range []http2.ErrCode{http2.ErrCodeHTTP11Required + 1, 1 << 31, 1<<32 - 1} {
		m.Reset(false, made)
	}
	m.GoAway("flood")
	got, after := above(t, registry)
	want := map[string]float64{
		"slidegate_grpc_connections":                           1,
		"slidegate_grpc_resets_total server NO_ERROR":          1,
		"slidegate_grpc_resets_total server REFUSED_STREAM":    1,
		"slidegate_grpc_resets_total client CANCEL":            1,
		"slidegate_grpc_resets_total client HTTP_1_1_REQUIRED": 1,
		"slidegate_grpc_resets_total client other":             3,
		"slidegate_grpc_goaways_total flood":                   1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	if after != before {
		t.Errorf("%d series, %d at the start: a client must not begin series", after, before)
	}
}

// TestTransportDoesNotAllocate counts events that occur with every call, or that a client
// can cause often.
func TestTransportDoesNotAllocate(t *testing.T) {
	m := NewTransport(prometheus.NewRegistry())
	for what, count := range map[string]func(){
		"resets":         func() { m.Reset(false, http2.ErrCodeCancel) },
		"unknown resets": func() { m.Reset(false, 1<<31) },
		"connections":    func() { m.Opened(); m.Closed() },
	} {
		if n := testing.AllocsPerRun(100, count); n != 0 {
			t.Errorf("%s: %v allocations, want none", what, n)
		}
	}
}
