package compat

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

func (r *reader) metrics() {
	const (
		statsd, host, port, protocol, interval = "USE_STATSD", "STATSD_HOST", "STATSD_PORT", "STATSD_PROTOCOL", "STATS_FLUSH_INTERVAL"
		prometheus, tags, dog, off             = "USE_PROMETHEUS", "EXTRA_TAGS", "USE_DOG_STATSD", "DISABLE_STATS"
	)
	r.ratio(&r.dropIn.NearLimit, "dropin.near_limit_ratio", "NEAR_LIMIT_RATIO")
	toStatsd := []string{host, port, protocol, interval}
	toPrometheus := []string{"PROMETHEUS_ADDR", "PROMETHEUS_PATH", "PROMETHEUS_MAPPER_YAML", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"}
	if r.truth(off) {
		r.note(off, "the metrics of envoyproxy/ratelimit are off")
		r.noEffect(off+" is true", slices.Concat(toStatsd, toPrometheus, []string{statsd, prometheus, tags, dog})...)
		return
	}
	r.note(off, "the metrics are not off")
	r.dogStatsd(dog)

	switch {
	// The default of USE_STATSD is true. Without a server envoyproxy/ratelimit tries one for ever.
	case r.truth(statsd) && (r.isSet(statsd) || r.isSet(host)):
		d := &r.dropIn.Statsd
		drop(r, &d.Address, r.hostPort("", host, port), "dropin.statsd.address", host, port, statsd)
		if p := r.text(protocol); p != "tcp" && p != "udp" {
			r.refuse(protocol, "%s", strict.NotOneOf(p, []string{"tcp", "udp"}))
		}
		drop(r, &d.Protocol, r.text(protocol), "dropin.statsd.protocol", protocol)
		if every := r.by[interval].period; every < time.Millisecond || every > time.Hour {
			r.refuse(interval, "%v is not between 1ms and 1h", every)
		}
		drop(r, &d.Interval, r.by[interval].period, "dropin.statsd.interval", interval)
	default:
		r.note(statsd, "no statsd")
		why := "USE_STATSD is false"
		if r.truth(statsd) {
			why = "neither USE_STATSD nor STATSD_HOST is set"
		}
		r.noEffect(why, toStatsd...)
	}
	switch {
	case r.truth(prometheus):
		d := &r.dropIn.Metrics
		drop(r, &d.Address, settings.Address(r.text("PROMETHEUS_ADDR")), "dropin.metrics.address", prometheus, "PROMETHEUS_ADDR")
		if !strings.HasPrefix(r.text("PROMETHEUS_PATH"), "/") {
			r.refuse("PROMETHEUS_PATH", "%s does not begin with /", strict.Quote(r.text("PROMETHEUS_PATH")))
		}
		drop(r, &d.Path, r.text("PROMETHEUS_PATH"), "dropin.metrics.path", "PROMETHEUS_PATH")
		if file := r.text("PROMETHEUS_MAPPER_YAML"); file != "" {
			drop(r, &d.MapperFile, file, "dropin.metrics.mapper_file", "PROMETHEUS_MAPPER_YAML")
		}
		drop(r, &d.Milliseconds, r.truth("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"), "dropin.metrics.milliseconds", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS")
		if r.truth(statsd) {
			r.note(prometheus, "envoyproxy/ratelimit does not start with it unless USE_STATSD is false")
		}
	default:
		r.note(prometheus, "no listener for Prometheus")
		r.noEffect("USE_PROMETHEUS is not true", toPrometheus...)
	}
	r.tags()
}

// tagName matches the name of a tag. It is also the name of a label for Prometheus, with _ for
// each other character.
var tagName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// tags reads the tags of all metrics, unless there are no metrics.
func (r *reader) tags() {
	const name = "EXTRA_TAGS"
	d := &r.dropIn
	if d.Statsd.Address == "" && d.Metrics.Address == "" {
		r.noEffect("the metrics of envoyproxy/ratelimit go nowhere", name)
		return
	}
	var shown []string
	tags := make(map[string]string)
	for _, p := range r.by[name].pairs {
		_, again := tags[p[0]]
		switch {
		case !tagName.MatchString(p[0]) || p[1] == "":
			r.refuse(name, "%s is not the name of a tag with a value: write name:value, with letters, digits and _.- in the name", strict.Quote(p[0]))
		case again:
			r.refuse(name, "%s is listed twice", strict.Quote(p[0]))
		case d.Metrics.Address != "" && (p[0] == "le" || p[0] == "quantile"):
			r.refuse(name, "%s is a label that Prometheus itself uses: choose another name", p[0])
		}
		tags[p[0]], shown = p[1], append(shown, p[0]+"="+p[1])
	}
	if slices.Sort(shown); len(tags) > 0 {
		d.Tags = tags
		drop(r, new([]string), shown, "dropin.tags", name)
	}
}

// ratio gives the drop-in the ratio from 0 to 1 that a variable says.
func (r *reader) ratio(to *float64, path, name string) {
	f := r.by[name].ratio
	if !(f >= 0 && f <= 1) {
		r.refuse(name, "expected %s, got %s", oneRatio, strict.Quote(r.text(name)))
		return
	}
	drop(r, to, f, path, name)
}

func (r *reader) dogStatsd(name string) {
	if !r.truth(name) {
		r.note(name, "no DogStatsD")
		return
	}
	r.refuse(name, "rls does not send DogStatsD: set it to false, and USE_STATSD=true or USE_PROMETHEUS=true, or DISABLE_STATS=true")
}

// traces reads where spans go. Without TRACING_ENABLED there are none, whatever the variables of
// OpenTelemetry say, as in envoyproxy/ratelimit.
func (r *reader) traces() {
	const enabled, name, namespace, instance, protocol, rate = "TRACING_ENABLED", "TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID", "TRACING_EXPORTER_PROTOCOL", "TRACING_SAMPLING_RATE"
	d := &r.dropIn.Traces
	if !r.truth(enabled) {
		drop(r, &d.Protocol, settings.TracesOff, "dropin.traces.protocol", enabled)
		r.noEffect("TRACING_ENABLED is not true", name, namespace, instance, protocol, rate)
		return
	}
	text := r.text(protocol)
	if text == "" {
		text = settings.TracesHTTP
	}
	if text != settings.TracesHTTP && text != settings.TracesGRPC {
		r.refuse(protocol, "%s", strict.NotOneOf(text, []string{settings.TracesHTTP, settings.TracesGRPC}))
		return
	}
	drop(r, &d.Protocol, text, "dropin.traces.protocol", enabled, protocol)
	r.ratio(&d.Sampling, "dropin.traces.sampling", rate)
	var attributes []string
	for _, a := range []struct{ variable, attribute string }{
		{name, "service.name"}, {namespace, "service.namespace"}, {instance, "service.instance.id"},
	} {
		value := r.text(a.variable)
		if strings.Contains(value, ",") {
			r.refuse(a.variable, "a comma cannot be in %s", a.attribute)
			return
		}
		if value != "" {
			attributes = append(attributes, a.attribute+"="+value)
		}
	}
	drop(r, &d.Attributes, attributes, "dropin.traces.attributes", name, namespace, instance)
}
