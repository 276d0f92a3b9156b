package envoyfile

import (
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// logs keeps the formats of the access logs of a manager. What cannot be read is left out: a log
// format decides no descriptor.
func (r *reader) logs(all []accessLog) {
	quiet := &strict.Decoder{File: r.d.File, Report: &strict.Report{}, Warn: &strict.Report{}, Proto: true}
	for i := range all {
		var l logger
		all[i].Config.Value.into(quiet, &l)
		for _, a := range []*anything{&l.Log.JSON, &l.JSON, &l.Typed} {
			fields := make(map[string]accesslog.Attribute)
			addFields(fields, "", a.node, 0)
			if len(fields) > 0 {
				r.config.Logs = append(r.config.Logs, accesslog.Written{Name: r.at(a.Spot).String(), Fields: fields})
			}
		}
		for _, a := range []*anything{&l.Log.Source.Inline, &l.Log.Text, &l.Text} {
			if n := target(a.node); n != nil && n.Kind == yaml.ScalarNode && n.Value != "" {
				r.config.Logs = append(r.config.Logs, accesslog.Written{Name: r.at(a.Spot).String(), Text: n.Value})
			}
		}
	}
}

// addFields adds the fields of JSON whose values are one operator, by their names. Names of objects
// in each other have points between them.
func addFields(fields map[string]accesslog.Attribute, prefix string, n *yaml.Node, depth int) {
	n = target(n)
	if n == nil || depth > maxDepth || len(fields) >= maxFields {
		return
	}
	if n.Kind == yaml.MappingNode {
		if prefix != "" {
			prefix += "."
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			addFields(fields, prefix+n.Content[i].Value, n.Content[i+1], depth+1)
		}
		return
	}
	if parts, err := Parse(n.Value); prefix != "" && n.Kind == yaml.ScalarNode && err == nil && len(parts) == 1 && parts[0].Attribute != "" && parts[0].Most == 0 {
		fields[prefix] = parts[0].Attribute
	}
}

// maxFields bounds the fields of a log format.
const maxFields = 1000

// target returns what an alias stands for, and any other node as it is.
func target(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n
}
