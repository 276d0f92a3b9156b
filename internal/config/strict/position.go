package strict

import (
	"strconv"

	"go.yaml.in/yaml/v4"
)

// A Path leads to a value of a document. It becomes text only for a problem.
type Path struct {
	Parent *Path
	Name   string     // of a key; empty for an item of a list
	line   int        // of the key
	Index  int        // of an item
	Item   *yaml.Node // an item, for its label; nil: Key and Value label it
	// Key and Value are those of an item that was not read from a document.
	Key, Value string
}

// A Position is the line and the path of a value.
type Position struct {
	Line int
	Path *Path
}

// Position returns the position of n. A mapping or a list below its key has the line of the key.
func (d *Decoder) Position(n *yaml.Node, p *Path) Position {
	below := (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && n.Style&yaml.FlowStyle == 0
	if below && p != nil && p.line > 0 {
		return Position{p.line, p}
	}
	return Position{n.Line, p}
}

// Render returns a path as text: keys joined by dots, and items of lists in brackets. It
// names an item by its id, or by its key and value, or by its number.
func (d *Decoder) Render(p *Path) string {
	if p == nil {
		return ""
	}
	before := d.Render(p.Parent)
	if p.Name == "" {
		return before + "[" + d.itemLabel(p) + "]"
	}
	if before != "" {
		before += "."
	}
	return before + Label(p.Name)
}

func (d *Decoder) itemLabel(p *Path) string {
	if d.HideValues {
		return strconv.Itoa(p.Index)
	}
	id, key, value := "", p.Key, p.Value
	secret := d.Hides != nil && d.Hides(key)
	if n := follow(p.Item); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := follow(n.Content[i+1])
			if v == nil || v.Kind != yaml.ScalarNode || IsNull(v) {
				continue
			}
			switch n.Content[i].Value {
			case "id":
				id = v.Value
			case "key":
				key = v.Value
				secret = secret || d.Hides != nil && d.Hides(key)
			case "value":
				value = v.Value
			}
		}
	}
	switch {
	case id != "":
		return Label(id)
	case key == "":
		return strconv.Itoa(p.Index)
	case value == "":
		return Label(key)
	case secret:
		return Label(key) + "=***"
	}
	return Label(key) + "=" + Label(value)
}
