package stats

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"go.uber.org/zap"
)

// builtIn has the mappings of envoyproxy/ratelimit.
//
//go:embed mapping.yaml
var builtIn string

// milliseconds is the part of builtIn that makes seconds of the response time.
const milliseconds = "    scale: 0.001\n"

// A Mapping makes names and labels for Prometheus from names of statsd. It is immutable.
type Mapping struct {
	mapper mapper.MetricMapper
	// tags are labels of every metric.
	tags map[string]string
}

// NewMapping returns the mappings of a file of statsd_exporter. tags are labels of every metric,
// except where a mapping has a label of that name.
func NewMapping(text string, tags map[string]string) (*Mapping, error) {
	m := &Mapping{tags: make(map[string]string, len(tags))}
	if err := m.mapper.InitFromYAMLString(text); err != nil {
		return nil, fmt.Errorf("is not a file of mappings: %w", err)
	}
	defaults := &m.mapper.Defaults
	if err := check(defaults.ObserverType, nil, &defaults.HistogramOptions, &defaults.SummaryOptions); err != nil {
		return nil, fmt.Errorf("is not a file of mappings: defaults: %w", err)
	}
	for i := range m.mapper.Mappings {
		mapping := &m.mapper.Mappings[i]
		if err := check(mapping.ObserverType, mapping.Labels, mapping.HistogramOptions, mapping.SummaryOptions); err != nil {
			return nil, fmt.Errorf("is not a file of mappings: %q: %w", mapping.Match, err)
		}
	}
	for name, value := range tags {
		m.tags[mapper.EscapeMetricName(name)] = strings.ToValidUTF8(value, "_")
	}
	return m, nil
}

// maxAgeBuckets and maxBufCap bound the memory of a summary.
const (
	maxAgeBuckets = 1000
	maxBufCap     = 1 << 20
)

// check returns what is wrong with a mapping that the library of statsd_exporter accepts, and
// that of Prometheus does not. The options may be nil.
func check(kind mapper.ObserverType, labels map[string]string, histogram *mapper.HistogramOptions, summary *mapper.SummaryOptions) error {
	switch kind {
	case mapper.ObserverTypeDefault, mapper.ObserverTypeHistogram, mapper.ObserverTypeSummary:
	default:
		return fmt.Errorf("unknown observer_type %q, expected histogram or summary", kind)
	}
	for name := range labels {
		if strings.HasPrefix(name, "__") || name == "le" || name == "quantile" {
			return fmt.Errorf("the label %s is reserved", name)
		}
	}
	if histogram != nil {
		for i, b := range histogram.Buckets {
			if math.IsNaN(b) || i > 0 && b <= histogram.Buckets[i-1] {
				return fmt.Errorf("the buckets are not in ascending order")
			}
		}
	}
	if summary == nil {
		return nil
	}
	for _, q := range summary.Quantiles {
		if !(q.Quantile >= 0 && q.Quantile <= 1 && q.Error > 0 && q.Error <= 1) {
			return fmt.Errorf("the quantile %v with the error %v is not between 0 and 1", q.Quantile, q.Error)
		}
	}
	if summary.MaxAge < 0 || summary.AgeBuckets > maxAgeBuckets || summary.BufCap > maxBufCap {
		return fmt.Errorf("max_age, age_buckets or buf_cap is out of range")
	}
	return nil
}

// BuiltIn returns the mappings of envoyproxy/ratelimit. inMilliseconds leaves response times in
// milliseconds.
func BuiltIn(tags map[string]string, inMilliseconds bool) (*Mapping, error) {
	text := builtIn
	if inMilliseconds {
		text = strings.Replace(text, milliseconds, "", 1)
	}
	return NewMapping(text, tags)
}

// series is one time series of a counter or gauge, as Prometheus sees it.
type series struct {
	id     string // its name and labels
	name   string
	help   string
	kind   prometheus.ValueType
	names  []string // of labels
	values []string // of labels
	scale  float64
	desc   *prometheus.Desc
	sum    float64 // of all counters that have this series; of one scrape
}

// generic is the help of a metric whose mapping has none.
const generic = "A metric of envoyproxy/ratelimit, by a mapping of statsd_exporter."

// find returns the mapping and the labels of a metric. keep is false if the mapping drops it.
func (m *Mapping) find(name string, kind mapper.MetricType) (mapping mapper.MetricMapping, labels map[string]string, keep bool) {
	labels = maps.Clone(m.tags)
	found, own, ok := m.mapper.GetMapping(name, kind)
	if ok {
		mapping = *found
		for k, v := range own {
			labels[k] = strings.ToValidUTF8(v, "_")
		}
	} else {
		mapping.Name = name
	}
	mapping.Name = mapper.EscapeMetricName(mapping.Name)
	if mapping.HelpText == "" {
		mapping.HelpText = generic
	}
	if !mapping.Scale.Set {
		mapping.Scale.Val = 1
	}
	return mapping, labels, mapping.Action != mapper.ActionTypeDrop && mapping.Name != ""
}

// series returns the series of a counter or gauge. Its name is empty if it is dropped.
func (m *Mapping) series(name string, kind prometheus.ValueType) *series {
	metricType := mapper.MetricTypeCounter
	if kind == prometheus.GaugeValue {
		metricType = mapper.MetricTypeGauge
	}
	mapping, labels, keep := m.find(name, metricType)
	if !keep || kind == prometheus.CounterValue && mapping.Scale.Val < 0 {
		return new(series)
	}
	s := &series{name: mapping.Name, help: mapping.HelpText, kind: kind, scale: mapping.Scale.Val, names: slices.Sorted(maps.Keys(labels))}
	id := []string{s.name}
	for _, n := range s.names {
		s.values = append(s.values, labels[n])
		id = append(id, n, labels[n])
	}
	s.id = strings.Join(id, "\xff")
	return s
}

// observed returns the histogram or summary of a timer, or nil if it is dropped.
func (m *Mapping) observed(name string) *observed {
	mapping, labels, keep := m.find(name, mapper.MetricTypeObserver)
	if !keep {
		return nil
	}
	o := &observed{scale: mapping.Scale.Val}
	kind := mapping.ObserverType
	if kind == mapper.ObserverTypeDefault {
		kind = m.mapper.Defaults.ObserverType
	}
	if kind == mapper.ObserverTypeHistogram {
		options := mapping.HistogramOptions
		if options == nil {
			options = &m.mapper.Defaults.HistogramOptions
		}
		buckets := options.Buckets
		if len(buckets) == 0 {
			buckets = m.mapper.Defaults.HistogramOptions.Buckets
		}
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: mapping.Name, Help: mapping.HelpText, ConstLabels: labels, Buckets: buckets})
		o.Collector, o.observer = h, h
		return o
	}
	objectives := m.mapper.Defaults.SummaryOptions.Quantiles
	options := prometheus.SummaryOpts{Name: mapping.Name, Help: mapping.HelpText, ConstLabels: labels, Objectives: make(map[float64]float64)}
	if own := mapping.SummaryOptions; own != nil {
		options.MaxAge, options.AgeBuckets, options.BufCap = own.MaxAge, own.AgeBuckets, own.BufCap
		if len(own.Quantiles) > 0 {
			objectives = own.Quantiles
		}
	}
	for _, q := range objectives {
		options.Objectives[q.Quantile] = q.Error
	}
	s := prometheus.NewSummary(options)
	o.Collector, o.observer = s, s
	return o
}

// collector shows the metrics to Prometheus. Labels depend on names, so it describes nothing
// beforehand.
type collector struct {
	stats *Stats
	log   *zap.Logger

	mu    sync.Mutex         // guards the fields below, and the series of counters and gauges
	kinds map[string]*series // the first series of each name, whose kind and help count
	told  bool               // a conflict of two kinds has been logged
}

// Collector shows the metrics to Prometheus. [Options.Mapping] must be set. log gets a warning if
// mappings give one name to metrics of two kinds.
func (s *Stats) Collector(log *zap.Logger) prometheus.Collector {
	return &collector{stats: s, log: log, kinds: make(map[string]*series)}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := make(map[string]*series)
	add := func(home **series, name string, kind prometheus.ValueType, value uint64) {
		if *home == nil {
			*home = c.series(name, kind)
		}
		s := *home
		if s.name == "" {
			return
		}
		if used[s.id] == nil {
			s.sum = 0
			used[s.id] = s
		}
		used[s.id].sum += s.scale * float64(value)
	}
	for _, counted := range c.stats.counters() {
		add(&counted.series, counted.name, prometheus.CounterValue, counted.read())
	}
	c.stats.mu.RLock()
	gauges := slices.Clone(c.stats.gauges)
	c.stats.mu.RUnlock()
	for _, g := range gauges {
		add(&g.series, g.name, prometheus.GaugeValue, g.read())
	}
	for _, s := range used {
		if metric, err := prometheus.NewConstMetric(s.desc, s.kind, s.sum, s.values...); err == nil {
			to <- metric // an error means that a mapping made a wrong name
		}
	}
	for _, m := range c.stats.methods {
		if m.series != nil && m.total.read() > 0 {
			m.series.Collect(to)
		}
	}
}

// series returns the series of a counter or gauge. Counters with the same name and labels have
// one series, which is their sum.
func (c *collector) series(name string, kind prometheus.ValueType) *series {
	s := c.stats.options.Mapping.series(name, kind)
	if s.name == "" {
		return s
	}
	first := c.kinds[s.name]
	switch {
	case first == nil:
		c.kinds[s.name] = s
	case first.kind != kind:
		if !c.told {
			c.told = true
			c.log.Warn("two metrics of different types have one name for Prometheus, which gets only the first; correct the file of PROMETHEUS_MAPPER_YAML",
				zap.String("name", s.name))
		}
		return new(series)
	default:
		s.help = first.help // Prometheus refuses two
	}
	s.desc = prometheus.NewDesc(s.name, s.help, s.names, nil)
	return s
}
