package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// tagName matches the name of a tag. It is also the name of a label for Prometheus, with _ for
// each other character.
var tagName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// labelsOfPrometheus are the labels of the buckets of a histogram and of the values of a summary.
var labelsOfPrometheus = []string{"le", "quantile"}

// reference checks the settings of metrics of envoyproxy/ratelimit.
func (l *settingsLoader) reference() {
	r := &l.settings.Reference
	if r.Statsd.Address != "" {
		l.remote("reference.statsd.address", Address(r.Statsd.Address), false)
	} else {
		l.refuse("reference.statsd", []string{"protocol", "interval"}, "nothing is sent: reference.statsd.address is not set")
	}
	if r.Metrics.Address == "" {
		l.refuse("reference.metrics", []string{"path", "mapper_file", "milliseconds"}, "there is no listener: reference.metrics.address is not set")
		if r.Statsd.Address == "" {
			l.refuse("reference", []string{"tags"}, "there are no such metrics: neither reference.metrics.address nor reference.statsd.address is set")
		}
	}
	if !strings.HasPrefix(r.Metrics.Path, "/") {
		l.problem("reference.metrics.path", "%s does not begin with /", strict.Quote(r.Metrics.Path))
	}
	seen := make(map[string]bool)
	for _, tag := range r.Tags {
		name, value, _ := strings.Cut(tag, "=")
		switch {
		case value == "" || !tagName.MatchString(name):
			l.problem("reference.tags", "%s is not a tag: write name=value, with letters, digits and _.- in the name", strict.Quote(tag))
		case r.Metrics.Address != "" && (name == "le" || name == "quantile"):
			l.problem("reference.tags", "%s is the name of a label that Prometheus uses itself: choose another name", strict.Quote(name))
		case seen[name]:
			l.problem("reference.tags", "%s is listed twice", strict.Quote(name))
		case r.Metrics.Address != "" && slices.Contains(labelsOfPrometheus, name):
			l.problem("reference.tags", "%s is a label that Prometheus itself uses: choose another name", name)
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
