package settings

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// dropInPrefix begins the names of the values of a drop-in for envoyproxy/ratelimit. They are no
// settings: only package compat gives them.
const dropInPrefix = "dropin."

// DropInValues returns pointers to what only a drop-in sets, by its names.
func DropInValues(s *Settings) map[string]any {
	r, x := &s.Reference, &s.Rules.XDS
	return map[string]any{
		"dropin.answers":                &r.Answers,
		"dropin.usage_reports":          &r.UsageReports,
		"dropin.local_cache":            &r.LocalCache,
		"dropin.tags":                   &r.Tags,
		"dropin.metrics.address":        &r.Metrics.Address,
		"dropin.metrics.path":           &r.Metrics.Path,
		"dropin.metrics.mapper_file":    &r.Metrics.MapperFile,
		"dropin.metrics.milliseconds":   &r.Metrics.Milliseconds,
		"dropin.statsd.address":         &r.Statsd.Address,
		"dropin.statsd.protocol":        &r.Statsd.Protocol,
		"dropin.statsd.interval":        &r.Statsd.Interval,
		"dropin.pages":                  &s.Admin.Pages,
		"dropin.headers.limit":          &s.Headers.Reference.Limit,
		"dropin.headers.remaining":      &s.Headers.Reference.Remaining,
		"dropin.headers.reset":          &s.Headers.Reference.Reset,
		"dropin.metadata.request":       &s.Metadata.Request,
		"dropin.near_limit_ratio":       &s.Metrics.NearLimitRatio,
		"dropin.unhealthy":              &s.HTTP.Unhealthy,
		"dropin.unix_sockets_tls":       &s.GRPC.TLS.UnixSockets,
		"dropin.redis_any_name":         &s.Store.Redis.TLS.AnyName,
		"dropin.rules.all_files":        &s.Rules.AllFiles,
		"dropin.rules.prefix":           &s.Rules.Prefix,
		"dropin.rules.ignore_dot_files": &s.Rules.IgnoreDotFiles,
		"dropin.rules.quota_mode":       &s.Rules.QuotaMode,
		"dropin.xds.node_metadata":      &x.NodeMetadata,
		"dropin.xds.headers":            &x.Headers,
		"dropin.xds.initial_backoff":    &x.InitialBackoff,
		"dropin.xds.max_backoff":        &x.MaxBackoff,
		"dropin.xds.max_message_bytes":  &x.MaxMessageBytes,
		"dropin.xds.wait":               &x.Wait,
		"dropin.traces.protocol":        &s.Traces.Protocol,
		"dropin.traces.sampling":        &s.Traces.Sampling,
		"dropin.traces.attributes":      &s.Traces.Attributes,
	}
}

// dropIn checks the values of a drop-in.
func (l *settingsLoader) dropIn() {
	r, x := &l.settings.Reference, &l.settings.Rules.XDS
	within(l, "dropin.xds.initial_backoff", x.InitialBackoff, 10*time.Millisecond, time.Hour)
	within(l, "dropin.xds.max_backoff", x.MaxBackoff, 10*time.Millisecond, strict.Day)
	within(l, "dropin.xds.max_message_bytes", x.MaxMessageBytes, 65_536, 1<<30)
	within(l, "dropin.statsd.interval", r.Statsd.Interval, time.Millisecond, time.Hour)
	l.oneOf("dropin.statsd.protocol", r.Statsd.Protocol, []string{"tcp", "udp"})
	if r.Statsd.Address != "" {
		l.remote("dropin.statsd.address", Address(r.Statsd.Address), false)
	}
	if !strings.HasPrefix(r.Metrics.Path, "/") {
		l.problem("dropin.metrics.path", "%s does not begin with /", strict.Quote(r.Metrics.Path))
	}
	switch p := l.settings.Rules.Prefix; {
	case strings.Contains(p, "/") || !isPrintable(p):
		l.problem("dropin.rules.prefix", "%s is not the name of a directory: write it without /", strict.Quote(p))
	case p == "." || p == ".." || strings.HasSuffix(p, "."):
		l.problem("dropin.rules.prefix", "%s: rls adds the dot itself", strict.Quote(p))
	}
	l.tags()
}

// within reports a value that is not between least and most.
func within[T int | time.Duration](l *settingsLoader, path string, got, least, most T) {
	if got < least || got > most {
		l.problem(path, "%v is not between %v and %v", got, least, most)
	}
}

// tagName matches the name of a tag. It is also the name of a label for Prometheus, with _ for
// each other character.
var tagName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// labelsOfPrometheus are the labels of the buckets of a histogram and of the values of a summary.
var labelsOfPrometheus = []string{"le", "quantile"}

// tags checks the tags of metrics of envoyproxy/ratelimit.
func (l *settingsLoader) tags() {
	r := &l.settings.Reference
	seen := make(map[string]bool)
	for _, tag := range r.Tags {
		name, value, _ := strings.Cut(tag, "=")
		switch {
		case value == "" || !tagName.MatchString(name):
			l.problem("dropin.tags", "%s is not a tag: write name=value, with letters, digits and _.- in the name", strict.Quote(tag))
		case r.Metrics.Address != "" && (name == "le" || name == "quantile"):
			l.problem("dropin.tags", "%s is the name of a label that Prometheus uses itself: choose another name", strict.Quote(name))
		case seen[name]:
			l.problem("dropin.tags", "%s is listed twice", strict.Quote(name))
		case r.Metrics.Address != "" && slices.Contains(labelsOfPrometheus, name):
			l.problem("dropin.tags", "%s is a label that Prometheus itself uses: choose another name", name)
		}
		seen[name] = true
	}
}

// TagMap returns the values of Tags by their names.
func (r Reference) TagMap() map[string]string {
	tags := make(map[string]string, len(r.Tags))
	for _, tag := range r.Tags {
		name, value, _ := strings.Cut(tag, "=")
		tags[name] = value
	}
	return tags
}
