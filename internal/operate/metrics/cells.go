package metrics

import (
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slidegate/slidegate/internal/core/cells"
)

// A counter is a prometheus.Counter of whole numbers that many cores add to.
type counter struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	begun  time.Time
	n      cells.Counter
}

func newCounters(name, help string, labels []string) *prometheus.CounterVec {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return &prometheus.CounterVec{MetricVec: prometheus.NewMetricVec(desc, func(values ...string) prometheus.Metric {
		return &counter{desc: desc, labels: prometheus.MakeLabelPairs(desc, values), begun: time.Now()}
	})}
}

// Inc, Add, Desc, Write, Describe and Collect implement prometheus.Counter.
func (c *counter) Inc()                                { c.n.Add(1) }
func (c *counter) Add(n float64)                       { c.n.Add(uint64(n)) }
func (c *counter) Desc() *prometheus.Desc              { return c.desc }
func (c *counter) Describe(to chan<- *prometheus.Desc) { to <- c.desc }
func (c *counter) Collect(to chan<- prometheus.Metric) { to <- c }
func (c *counter) Write(to *dto.Metric) error {
	to.Label = c.labels
	to.Counter = &dto.Counter{Value: new(float64(c.n.Load())), CreatedTimestamp: timestamppb.New(c.begun)}
	return nil
}

// A histogram is a prometheus.Histogram of seconds that many cores observe.
type histogram struct {
	prometheus.Histogram // has the labels, and what came with exemplars
	prometheus.ExemplarObserver
	desc   *prometheus.Desc
	bounds []float64
	counts []cells.Counter // by bucket; the last is above all bounds
	sum    cells.Counter   // in nanoseconds
}

func newHistograms(name, help string, bounds []float64, labels []string) *prometheus.HistogramVec {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return &prometheus.HistogramVec{MetricVec: prometheus.NewMetricVec(desc, func(values ...string) prometheus.Metric {
		of := make(prometheus.Labels, len(labels))
		for i, l := range labels {
			of[l] = values[i]
		}
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds, ConstLabels: of})
		return &histogram{Histogram: h, ExemplarObserver: h.(prometheus.ExemplarObserver), desc: desc, bounds: bounds, counts: make([]cells.Counter, len(bounds)+1)}
	})}
}

// Desc, Observe and Write implement prometheus.Histogram.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

func (h *histogram) Observe(seconds float64) {
	h.counts[sort.SearchFloat64s(h.bounds, seconds)].Add(1)
	h.sum.Add(uint64(max(seconds, 0) * float64(time.Second)))
}

func (h *histogram) Write(to *dto.Metric) error {
	if err := h.Histogram.Write(to); err != nil {
		return err
	}
	all, out := uint64(0), to.GetHistogram()
	for i := range h.counts {
		if all += h.counts[i].Load(); i < len(out.GetBucket()) {
			out.Bucket[i].CumulativeCount = new(out.Bucket[i].GetCumulativeCount() + all)
		}
	}
	out.SampleCount = new(out.GetSampleCount() + all)
	out.SampleSum = new(out.GetSampleSum() + float64(h.sum.Load())/float64(time.Second))
	return nil
}
