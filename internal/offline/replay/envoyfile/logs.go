package envoyfile

import (
	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// logs keeps the formats of the access logs of a manager. What cannot be read is left out: a log
// format decides no descriptor.
func (r *reader) logs(all []value) {
	q := quiet()
	for _, v := range all {
		config, _ := q.typed(q.object(v).get("typed_config"))
		l := q.object(config)
		format := q.object(l.get("log_format"))
		for _, f := range []value{format.get("json_format"), l.get("json_format"), l.get("typed_json_format")} {
			fields := make(map[string]accesslog.Attribute)
			addFields(fields, "", f.node, 0)
			if len(fields) > 0 {
				r.config.Logs = append(r.config.Logs, accesslog.Written{Name: r.at(f.Position).String(), Fields: fields})
			}
		}
		for _, f := range []value{q.object(format.get("text_format_source")).get("inline_string"), format.get("text_format"), l.get("format")} {
			if text := q.text(f); text != "" {
				r.config.Logs = append(r.config.Logs, accesslog.Written{Name: r.at(f.Position).String(), Text: text})
			}
		}
	}
}

// addFields adds the fields of JSON whose values are one operator, by their names. Names of objects
// in each other have points between them.
func addFields(fields map[string]accesslog.Attribute, prefix string, n *yaml.Node, depth int) {
	n = strict.Target(n)
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
