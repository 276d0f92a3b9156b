package stats

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"github.com/prometheus/statsd_exporter/pkg/registry"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// builtIn has the mappings of envoyproxy/ratelimit.
//
//go:embed mapping.yaml
var builtIn string

// milliseconds is the part of builtIn that makes seconds of the response time.
const milliseconds = "    scale: 0.001\n"

// A Mapping makes names and labels for Prometheus from names of statsd. It is for one Stats.
type Mapping struct {
	mapper mapper.MetricMapper
	// tags are labels of every metric.
	tags map[string]string
	// times has the times of calls. observers, guarded by mu, makes them.
	times     *prometheus.Registry
	mu        sync.Mutex
	observers *registry.Registry
}

// NewMapping returns the mappings of a file of statsd_exporter. tags are labels of every metric,
// except where a mapping has a label of that name.
func NewMapping(text string, tags map[string]string) (*Mapping, error) {
	m := &Mapping{tags: make(map[string]string, len(tags)), times: prometheus.NewRegistry()}
	m.observers = registry.NewRegistry(m.times, &m.mapper)
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

const generic = "A metric of envoyproxy/ratelimit, by a mapping of statsd_exporter."

// maxMapping bounds a file of mappings, in bytes.
const maxMapping = 1 << 20

// CheckMapping reports what is wrong with the file of PROMETHEUS_MAPPER_YAML. The error is
// a [strict.Problem].
func CheckMapping(s settings.Settings) error {
	_, err := OpenMapping(s.DropIn)
	return err
}

// OpenMapping returns the mappings of the settings, or nil if there is no listener for them.
func OpenMapping(s settings.DropIn) (*Mapping, error) {
	if s.Metrics.Address == "" {
		return nil, nil
	}
	file := s.Metrics.MapperFile
	if file == "" {
		return BuiltIn(s.Tags, s.Metrics.Milliseconds)
	}
	data, err := files.Read(file, maxMapping)
	var m *Mapping
	if err == nil {
		m, err = NewMapping(string(data), s.Tags)
	}
	if err != nil {
		return nil, strict.Problems{{Path: "PROMETHEUS_MAPPER_YAML", Message: fmt.Sprintf("%s: %s", strict.Quoteless(file), err)}}
	}
	return m, nil
}

// mapped is what the mappings make of a name. It is immutable.
type mapped struct {
	name, help string
	labels     map[string]string
	scale      float64
}

// find returns what the mappings make of a name, and the mapping. It returns nil if they drop it.
func (m *Mapping) find(name string, kind mapper.MetricType) (*mapped, *mapper.MetricMapping) {
	labels := maps.Clone(m.tags)
	mapping, captured, ok := m.mapper.GetMapping(name, kind)
	if ok {
		name = mapping.Name
		for k, v := range captured {
			labels[k] = strings.ToValidUTF8(v, "_")
		}
	} else {
		mapping = new(mapper.MetricMapping)
	}
	found := &mapped{name: mapper.EscapeMetricName(name), help: cmp.Or(mapping.HelpText, generic), labels: labels, scale: 1}
	if mapping.Scale.Set {
		found.scale = mapping.Scale.Val
	}
	if mapping.Action == mapper.ActionTypeDrop || found.name == "" || kind == mapper.MetricTypeCounter && found.scale < 0 {
		return nil, nil
	}
	return found, mapping
}

// vectors is what the registry of statsd_exporter counts of itself. It is not shown.
var vectors = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vectors", Help: "Vectors by type."}, []string{"type"})

// observed returns the histogram or summary of a timer, or nil if it is dropped, or another timer has
// its name.
func (m *Mapping) observed(name string) *observed {
	found, mapping := m.find(name, mapper.MetricTypeObserver)
	if found == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	get := m.observers.GetSummary
	if cmp.Or(mapping.ObserverType, m.mapper.Defaults.ObserverType) == mapper.ObserverTypeHistogram {
		get = m.observers.GetHistogram
	}
	o, err := get(found.name, found.labels, found.help, mapping, vectors)
	if err != nil {
		return nil
	}
	return &observed{o, found.scale}
}

// gather returns the counters and gauges as Prometheus sees them. Those with the same name and labels
// are one series, which is their sum. Of two kinds with one name, the first is shown, and log gets one
// warning.
func (s *Stats) gather(log *zap.Logger) prometheus.Gatherer {
	s.scrape.Lock()
	defer s.scrape.Unlock()
	all, helps := prometheus.NewRegistry(), make(map[string]string)
	series := registry.NewRegistry(all, &s.options.Mapping.mapper)
	add := func(c *counter, kind mapper.MetricType) {
		if !c.found {
			c.mapped, _ = s.options.Mapping.find(c.name, kind)
			c.found = true
		}
		m := c.mapped
		if m == nil {
			return
		}
		if helps[m.name] == "" {
			helps[m.name] = m.help // Prometheus refuses two
		}
		var to interface{ Add(float64) }
		var err error
		if kind == mapper.MetricTypeGauge {
			to, err = series.GetGauge(m.name, m.labels, helps[m.name], new(mapper.MetricMapping), vectors)
		} else {
			to, err = series.GetCounter(m.name, m.labels, helps[m.name], new(mapper.MetricMapping), vectors)
		}
		if err == nil {
			to.Add(m.scale * float64(c.read()))
		} else if !s.logged {
			s.logged = true
			log.Warn("two metrics of different types have one name for Prometheus, which gets only the first; correct the file of PROMETHEUS_MAPPER_YAML",
				zap.String("name", m.name))
		}
	}
	for _, c := range s.counters() {
		add(c, mapper.MetricTypeCounter)
	}
	s.mu.RLock()
	gauges := slices.Clone(s.gauges)
	s.mu.RUnlock()
	for _, g := range gauges {
		add(g, mapper.MetricTypeGauge)
	}
	return all
}
