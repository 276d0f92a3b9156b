package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// alertsText returns the page of the alerts, from their file.
func alertsText() (string, error) {
	const file = "deploy/prometheus/rules.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var read struct {
		Groups []struct {
			Rules []struct {
				Alert, For          string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(data, &read); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	b.WriteString("```sh\npromtool check rules rules.yaml\n```\n\n" +
		wrap("[deploy/prometheus](../../deploy/prometheus) has the alerts (rules.yaml) and an example for prometheus.yml. The Kubernetes manifests and the chart install them for the Prometheus operator. Import the dashboards of [deploy/grafana](../../deploy/grafana) in Grafana 9 or later. [metrics.md](metrics.md) explains the metrics."))
	for _, g := range read.Groups {
		for _, a := range g.Rules {
			when := "after " + a.For
			if a.For == "0m" {
				when = "at once"
			}
			says := a.Annotations
			fmt.Fprintf(&b, "\n## %s\n\n%s\n%s\n%s", a.Alert,
				wrap(fmt.Sprintf("%s, %s: %s %s", capital(a.Labels["severity"]), when, says["summary"], example(says["description"]))),
				wrap("**Look at:** "+linked(says["look_at"])), wrap("**Do:** "+linked(says["do"])))
		}
	}
	return b.String(), nil
}

var (
	instance = regexp.MustCompile(`^\{\{ with .*?\{\{ end \}\}: `)
	variable = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	value    = regexp.MustCompile(`\{\{ \$value \| (\w+) \}\}`)
)

// example returns a description of an alert as it reads without values.
func example(description string) string {
	text := instance.ReplaceAllString(description, "")
	text = variable.ReplaceAllStringFunc(text, func(v string) string { return strings.ToUpper(variable.FindStringSubmatch(v)[1]) })
	return value.ReplaceAllStringFunc(text, func(v string) string {
		return map[string]string{"humanize": "N", "humanizePercentage": "N %", "humanizeDuration": "N ms"}[value.FindStringSubmatch(v)[1]]
	})
}

var (
	// otherAlert matches the name of an alert, and operatePage the address of a section of operate.md.
	otherAlert  = regexp.MustCompile(`Slidegate[A-Z]\w+`)
	operatePage = regexp.MustCompile(`https://github\.com/slidegate/slidegate/blob/[^/]+/docs/operate\.md(#[a-z-]+)`)
)

// linked returns a text with links to the other alerts and to the page that it names.
func linked(text string) string {
	text = otherAlert.ReplaceAllStringFunc(text, func(name string) string { return "[" + name + "](#" + strings.ToLower(name) + ")" })
	return operatePage.ReplaceAllString(text, "[operate.md](../operate.md$1)")
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
