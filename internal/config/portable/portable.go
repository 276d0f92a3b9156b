// Package portable checks whether envoyproxy/ratelimit reads rules files as rls does: [Check]. That
// service has its own reader, for YAML 1.1.
package portable

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	configrules "github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Check reports what envoyproxy/ratelimit refuses in files, and what it would read
// otherwise. It reports no mistakes that [configrules.Read] reports too. plain returns what that service makes of a
// scalar without quotes.
func Check(o configrules.Options, sources []files.File, plain func(text string) any) {
	c := portableCheck{Options: o, plain: plain, domains: make(map[string]composites)}
	for _, src := range sources {
		docs, problem := strict.Parse(src.Name, src.Data)
		if problem != nil {
			continue // Read reports it
		}
		for i, doc := range docs {
			root := strict.Root(doc)
			if root == nil {
				continue
			}
			c.decoder = &strict.Decoder{File: src.Name, Report: o.Report, Warn: o.Warn, Hides: o.Identity.Secrets.Hides}
			c.quiet, c.seen = &strict.Decoder{Report: new(strict.Report)}, make(map[*yaml.Node]bool)
			if i > 0 {
				c.decoder.Problem(strict.Position{Line: root.Line}, "envoyproxy/ratelimit reads only the first YAML document of a file: put this one into another file")
			}
			c.mapping(root, nil, 0)
		}
	}
}

// composites are the descriptors of one level, as envoyproxy/ratelimit names them: key_value.
type composites map[string]composite

type composite struct {
	key, value string
	location   configrules.Location
}

type portableCheck struct {
	configrules.Options
	plain   func(text string) any
	decoder *strict.Decoder
	quiet   *strict.Decoder       // follows merge keys; its bound of aliases is that of the document
	domains map[string]composites // the first levels, which several files may share
	seen    map[*yaml.Node]bool   // values of the document that are checked
}

// maxPortableDepth bounds how deep the check goes. Read refuses deeper files.
const maxPortableDepth = 200

// mapping checks the keys of a mapping. envoyproxy/ratelimit accepts any of its keys at any
// level.
func (c *portableCheck) mapping(n *yaml.Node, path *strict.Path, depth int) {
	if n = c.once(n); n == nil || n.Kind != yaml.MappingNode || depth > maxPortableDepth {
		return
	}
	for _, kv := range c.pairsOf(n, path) {
		if c.seen[kv.Key] {
			continue // another mapping has it merged
		}
		c.seen[kv.Key] = true
		at := kv.Below(path)
		switch {
		case kv.Name == "metadata":
			c.metadata(kv.Key, kv.Value, at, depth+1)
		case slices.Contains(configrules.PortableKeys, kv.Name):
			c.value(kv.Value, at, depth+1)
		case configrules.IsKey(kv.Name):
			c.problem(strict.Position{Line: kv.Key.Line, Path: at}, "envoyproxy/ratelimit does not know this key and refuses the file%s", instead[kv.Name])
		}
	}
	c.level(n, path)
}

// instead says what to write for some keys that envoyproxy/ratelimit does not have.
var instead = map[string]string{
	"window":   ": write unit and requests_per_unit",
	"requests": ": write unit and requests_per_unit",
	"policy":   ": remove it; every limit counts there as with the policy fixed",
	"rate":     ": write unit and requests_per_unit",
	"burst":    ": write unit and requests_per_unit",
	"starts":   ": every unit begins there at a whole multiple of its length since 1970-01-01 UTC",
	"limits":   ": give the rule one limit",
	"observe":  ": write shadow_mode in the descriptor",
	"headers":  ": set headers.styles",
}

func (c *portableCheck) value(n *yaml.Node, path *strict.Path, depth int) {
	if t := strict.Target(n); t != nil && t.Kind == yaml.MappingNode {
		c.mapping(t, path, depth)
		return
	}
	if n = c.once(n); n == nil {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			c.mapping(item, &strict.Path{Parent: path, Index: i, Item: item}, depth)
		}
		if path.Name == "descriptors" && path.Parent != nil && path.Parent.Name == "" {
			c.siblings(n, path, make(composites))
		}
	case yaml.ScalarNode:
		if c.oddNumber(n) {
			c.problem(strict.Position{Line: n.Line, Path: path}, "envoyproxy/ratelimit takes %s for a number that is not whole, and refuses the file: quote it", c.shown(path, n.Value))
		}
	}
}

func (c *portableCheck) shown(path *strict.Path, value string) string {
	if path.Name == "value" && path.Parent != nil {
		if key, ok := textOf(c.find(path.Parent.Item, "key")); ok && c.decoder.Hides(key) {
			return strict.Hidden
		}
	}
	return strict.Quote(value)
}

// once follows an alias. It returns nil for a value that is checked already, so that many
// aliases of one value take no time and make no further problems.
func (c *portableCheck) once(n *yaml.Node) *yaml.Node {
	n = strict.Target(n)
	if n == nil || c.seen[n] {
		return nil
	}
	c.seen[n] = true
	return n
}

func (c *portableCheck) level(n *yaml.Node, path *strict.Path) {
	if path == nil {
		domain, _ := textOf(c.find(n, "domain"))
		if list := strict.Target(c.find(n, "descriptors")); domain != "" && list != nil && list.Kind == yaml.SequenceNode {
			if c.domains[domain] == nil {
				c.domains[domain] = make(composites)
			}
			c.siblings(list, &strict.Path{Name: "descriptors"}, c.domains[domain])
		}
		return
	}
	if path.Name == "rate_limit" {
		if unit := c.find(n, "unit"); unit != nil {
			c.unit(unit, &strict.Path{Parent: path, Name: "unit"})
		}
	}
}

func (c *portableCheck) unit(n *yaml.Node, path *strict.Path) {
	text, ok := textOf(n)
	if !ok || text == "" {
		return
	}
	for _, unit := range configrules.Units() {
		if strings.ToUpper(text) == strings.ToUpper(unit) { //nolint:staticcheck // EqualFold is true for other letters too
			return
		}
	}
	c.problem(strict.Position{Line: n.Line, Path: path}, "envoyproxy/ratelimit does not know the unit %s", strict.Quote(text))
}

func (c *portableCheck) siblings(list *yaml.Node, path *strict.Path, level composites) {
	for i, item := range list.Content {
		n := strict.Target(item)
		if n == nil || n.Kind != yaml.MappingNode {
			continue
		}
		at := &strict.Path{Parent: path, Index: i, Item: item}
		keyNode, valueNode := c.find(n, "key"), c.find(n, "value")
		key, ok := textOf(keyNode)
		if !ok || key == "" {
			continue
		}
		value, _ := textOf(valueNode)
		c.descriptor(at, keyNode, valueNode, key, value)
		name := key
		if value != "" {
			name += "_" + value
		}
		here := composite{key, value, configrules.Location{File: c.decoder.File, Line: item.Line}}
		first, again := level[name]
		switch {
		case !again:
			level[name] = here
		case first.key != key: // Read reports a descriptor that is there twice
			c.problem(strict.Position{Line: item.Line, Path: at}, "envoyproxy/ratelimit joins key and value by _, and so takes this for the descriptor %s a second time: change one of them", first.location.From(c.decoder.File))
		}
	}
}

func (c *portableCheck) descriptor(at *strict.Path, keyNode, valueNode *yaml.Node, key, value string) {
	if strings.Contains(key, descriptors.Wildcard) {
		c.problem(strict.Position{Line: keyNode.Line, Path: &strict.Path{Parent: at, Name: "key"}}, "envoyproxy/ratelimit takes a * in a key for a wildcard, rls for a character")
	}
	if value == "" {
		return
	}
	position := strict.Position{Line: valueNode.Line, Path: &strict.Path{Parent: at, Name: "value"}}
	plain := rules.Canonical(descriptors.Entry{Key: key, Value: value})
	if first := strings.Index(value, descriptors.Wildcard); first >= 0 && first != len(value)-1 {
		c.decoder.Warning(position, "envoyproxy/ratelimit from before March 2026 takes only one * at the end of a value for a wildcard")
	}
	switch {
	case plain == value:
	case c.decoder.Hides(key):
		c.problem(position, "envoyproxy/ratelimit compares bytes, so white space at the ends of a value counts there: remove it")
	default:
		c.problem(position, "envoyproxy/ratelimit compares bytes, and rls reads this value as %s: write that", strict.Quote(plain))
	}
}

func (c *portableCheck) metadata(key, value *yaml.Node, at *strict.Path, depth int) {
	c.decoder.Warning(strict.Position{Line: key.Line, Path: at}, "envoyproxy/ratelimit from before May 2026 does not know this key and refuses the file")
	c.freeKeys(value, at, depth)
}

// freeKeys reports keys that YAML 1.1 does not take for texts.
func (c *portableCheck) freeKeys(n *yaml.Node, path *strict.Path, depth int) {
	if n = c.once(n); n == nil || depth > maxPortableDepth {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := &strict.Path{Parent: path, Name: key.Value}
			if key.Value != "<<" && !c.isText(key) {
				c.problem(strict.Position{Line: key.Line, Path: at}, "envoyproxy/ratelimit takes the key %s for no text: quote it", strict.Quote(key.Value))
			}
			c.freeKeys(value, at, depth+1)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			c.freeKeys(item, &strict.Path{Parent: path, Index: i, Item: item}, depth+1)
		}
	}
}

// problem reports a problem, unless Read has reported one at the same position.
func (c *portableCheck) problem(s strict.Position, format string, args ...any) {
	path, name := c.decoder.Render(s.Path), strconv.Quote(s.Path.Name)
	if c.Report.Has(func(p strict.Problem) bool {
		return p.File == c.decoder.File && p.Line == s.Line && (p.Path == path || strings.Contains(p.Message, name) && s.Path.Name != "")
	}) {
		return
	}
	c.decoder.Problem(s, format, args...)
}

// pairsOf returns the pairs of a mapping with those of merge keys. Read reports what is wrong with it.
func (c *portableCheck) pairsOf(n *yaml.Node, path *strict.Path) []strict.Pair {
	if n == nil {
		return nil
	}
	return c.quiet.Pairs(n, path)
}

// find returns the value of a key of a mapping, also of a merged one, or nil.
func (c *portableCheck) find(n *yaml.Node, key string) *yaml.Node {
	for _, kv := range c.pairsOf(strict.Target(n), nil) {
		if kv.Name == key {
			return strict.Target(kv.Value)
		}
	}
	return nil
}

// textOf returns the text of a scalar. ok is false for other nodes. A scalar without a value is
// the empty text.
func textOf(n *yaml.Node) (text string, ok bool) {
	switch {
	case n == nil || n.Kind != yaml.ScalarNode:
		return "", false
	case strict.IsNull(n):
		return "", true
	}
	return n.Value, true
}

// quoted reports whether a scalar is in quotes or has several lines, so that it is a text.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 || n.Style&yaml.TaggedStyle != 0 && n.ShortTag() == "!!str"
}

// oddNumber reports whether YAML 1.1 takes a scalar for a number that is not whole, or beyond
// 64 bits. envoyproxy/ratelimit accepts texts, whole numbers, truth values and nothing.
func (c *portableCheck) oddNumber(n *yaml.Node) bool {
	if quoted(n) || n.Value == "" || !strings.ContainsRune("+-.0123456789", rune(n.Value[0])) {
		return false
	}
	switch c.plain(n.Value).(type) {
	case float64, uint64:
		return true
	}
	return false
}

// isText reports whether YAML 1.1 takes a scalar for a text.
func (c *portableCheck) isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || quoted(n) {
		return n.Kind == yaml.ScalarNode
	}
	_, ok := c.plain(n.Value).(string)
	return ok
}
