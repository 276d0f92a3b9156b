package metrics

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestHistogram compares a histogram that many goroutines observe with one of the library that gets the
// same values one by one.
func TestHistogram(t *testing.T) {
	values := []float64{-1, 0, 0.00001, 0.000011, 0.003, 0.1, 1, 7}
	registry := prometheus.NewPedanticRegistry()
	h := factory{registry}.seconds("h", "help", latencies[:], "method").WithLabelValues("m")
	want := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Help: "help", Buckets: latencies[:], ConstLabels: prometheus.Labels{"method": "m"}})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, v := range values {
				h.Observe(v)
			}
		})
		for _, v := range values {
			want.Observe(max(v, 0))
		}
	}
	all.Wait()
	exemplar := prometheus.Labels{"trace_id": "1"}
	Observe(h, 2, exemplar)
	Observe(want, 2, exemplar)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, expected := families[0].GetMetric()[0], new(dto.Metric)
	if err := want.Write(expected); err != nil {
		t.Fatal(err)
	}
	if diff := got.GetHistogram().GetSampleSum() - expected.GetHistogram().GetSampleSum(); diff > 1e-6 || diff < -1e-6 {
		t.Errorf("the sum is %v, want %v", got.GetHistogram().GetSampleSum(), expected.GetHistogram().GetSampleSum())
	}
	for _, m := range []*dto.Metric{got, expected} {
		m.Histogram.SampleSum, m.Histogram.CreatedTimestamp = nil, nil
		for _, b := range m.GetHistogram().GetBucket() {
			if e := b.GetExemplar(); e != nil {
				e.Timestamp = nil
			}
		}
	}
	if got.String() != expected.String() {
		t.Errorf("the histogram is\n%v\nwant\n%v", got, expected)
	}
}

// BenchmarkObserve measures what a call adds to metrics, on as many cores as -cpu says.
func BenchmarkObserve(b *testing.B) {
	m := New(prometheus.NewRegistry(), Options{})
	meter, calls := m.Meter("edge", "rule"), m.RPC("/s/M", "OK")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			meter.Count(0)
			m.StoreSeconds(10 * time.Microsecond.Seconds())
			calls.Observe(20 * time.Microsecond.Seconds())
		}
	})
}
