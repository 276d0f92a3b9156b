package envoyfile

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// maxMapBytes bounds a mapping file.
const maxMapBytes = 1 << 20

// A Map is a mapping file: the descriptors of requests without Envoy's configuration.
type Map struct {
	Domain string
	// Fields says what the fields of JSON logs are, by name. Nil: the names that rls knows.
	Fields map[string]accesslog.Attribute
	Limits []*RateLimit
}

type mapFile struct {
	Domain      strict.Field[string]                                 `yaml:"domain,required" doc:"the domain of the rules"`
	Fields      strict.Field[strict.Ordered[strict.Field[logField]]] `yaml:"fields" doc:"for JSON logs with other names: the operator that each field stands for; dots lead into objects"`
	Descriptors strict.Field[[]strict.Field[mappedDescriptor]]       `yaml:"descriptors,required" doc:"the descriptors of a request: each is a list of entries key=value, or a mapping with more keys. If an operator has no value in a request, the request does not have the descriptor. An entry whose key ends with ? may be missing alone"`
}

// logField is an operator.
type logField struct {
	accesslog.Attribute
	isTime bool // of the request
}

// UnmarshalText reads an operator with its percent signs.
func (f *logField) UnmarshalText(text []byte) (err error) {
	s := string(text)
	if len(s) < 3 || s[0] != '%' || s[len(s)-1] != '%' {
		return fmt.Errorf("expected an operator such as %%REQ(x-tenant)%%, got %s", strict.Quote(s))
	}
	if f.Attribute, err = accesslog.Parse(s); err != nil {
		return err
	}
	f.isTime, err = f.IsTime()
	return err
}

// mappedDescriptor is a list of entries, or a mapping with the entries and more.
type mappedDescriptor struct {
	entries strict.Field[[]strict.Field[string]]
	more    descriptorKeys
}

type descriptorKeys struct {
	Entries strict.Field[[]strict.Field[string]] `yaml:"entries,required" doc:"the list of entries, if the item is a mapping; %% is a percent sign"`
	When    strict.Field[conditions]             `yaml:"when" doc:"conditions, all of which must hold"`
	Cost    strict.Field[string]                 `yaml:"cost" doc:"the cost: a number, or an operator such as %REQ(x-cost)%; 1 without it"`
	AtEnd   bool                                 `yaml:"at_end" doc:"true: charged when the request has ended, never denied"`
	Refund  bool                                 `yaml:"refund" doc:"true: gives the cost back"`
}

// conditions say which requests have a descriptor. All must hold.
type conditions struct {
	Path       strict.Field[string] `yaml:"path" doc:"the path without its query"`
	PathPrefix strict.Field[string] `yaml:"path_prefix" doc:"the beginning of the path"`
	PathRegex  strict.Field[string] `yaml:"path_regex" doc:"a regular expression for all of the path without its query"`
	Method     []string             `yaml:"method" doc:"one of these methods"`
	Host       []string             `yaml:"host" doc:"one of these hosts, as the log has them"`
}

// ReadNode reads a list or a mapping.
func (m *mappedDescriptor) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	if n.Kind == yaml.MappingNode {
		d.Object(n, reflect.ValueOf(&m.more).Elem(), p)
		m.entries = m.more.Entries
		return
	}
	m.entries.ReadLocated(d, n, p)
}

// fieldsFile is a mapping file next to Envoy's configuration.
type fieldsFile struct {
	Fields strict.Field[strict.Ordered[strict.Field[logField]]] `yaml:"fields,required" doc:"the operator that each field of the log stands for"`
}

// AdviseKey says why the other keys of a mapping file are not here.
func (fieldsFile) AdviseKey(key string) strict.KeyAdvice {
	if key == "domain" || key == "descriptors" {
		return strict.KeyAdvice{Message: strict.Quote(key) + " does not go with --envoy: Envoy's configuration makes the descriptors. Remove it, or leave --envoy out"}
	}
	return strict.KeyAdvice{}
}

// ReadMap reads a mapping file. withEnvoy: Envoy's configuration makes the descriptors, so the file has the
// names of fields alone. The error is [strict.Problems]: everything that is wrong.
func ReadMap(name string, withEnvoy bool) (*Map, error) {
	report := &strict.Report{}
	report.File(name)
	src, err := files.ReadFile(name, maxMapBytes)
	if err != nil {
		report.Addf(name, 0, "", "%v", err)
		return nil, report.Err()
	}
	return parseMap(name, src.Data, withEnvoy, report)
}

func parseMap(name string, data []byte, withEnvoy bool, report *strict.Report) (*Map, error) {
	var in mapFile
	into, needs := reflect.ValueOf(&in).Elem(), "domain and descriptors"
	var alone fieldsFile
	if withEnvoy {
		into, needs = reflect.ValueOf(&alone).Elem(), "fields"
	}
	root := strict.Document(name, data, report, "a mapping file", needs)
	if root == nil {
		return nil, report.Err()
	}
	r := &reader{report: report, d: &strict.Decoder{File: name, Report: report, Hides: func(string) bool { return true }}}
	r.d.Decode(root, into, nil)
	if withEnvoy {
		in.Fields = alone.Fields
	}
	out := &Map{Domain: in.Domain.Value}
	if strict.Given(&in.Domain) && out.Domain == "" {
		r.d.Problem(in.Domain.Position, "a domain is needed: that of the rules")
	}
	r.fields(out, &in.Fields)
	for i := range in.Descriptors.Value {
		out.Limits = append(out.Limits, r.mapped(&in.Descriptors.Value[i]))
	}
	if strict.Given(&in.Descriptors) && len(out.Limits) == 0 {
		r.d.Problem(in.Descriptors.Position, "at least one descriptor is needed")
	}
	if err := report.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// fields reads what the fields of logs are.
func (r *reader) fields(out *Map, all *strict.Field[strict.Ordered[strict.Field[logField]]]) {
	timed := false
	for _, f := range all.Value {
		if f.Key == "" {
			r.d.Problem(f.Position, "a field needs a name: that of the field in the log")
		}
		if out.Fields == nil {
			out.Fields = make(map[string]accesslog.Attribute)
		}
		out.Fields[f.Key] = f.Value.Value.Attribute
		timed = timed || f.Value.Value.isTime || f.Value.Bad // a bad one may be the time
	}
	if len(all.Value) > 0 && !timed {
		r.d.Problem(all.Position, "no field says when a request came: name the one that is %s, or %s", accesslog.StartTime, accesslog.EmitTime)
	}
}

// mapped reads one descriptor.
func (r *reader) mapped(f *strict.Field[mappedDescriptor]) *RateLimit {
	m := &f.Value
	out := &RateLimit{Location: r.at(f.Position), AtEnd: m.more.AtEnd}
	for i := range m.entries.Value {
		e := &m.entries.Value[i]
		if e.Bad {
			continue
		}
		key, value, ok := strings.Cut(e.Value, "=")
		key, optional := strings.CutSuffix(key, "?")
		if !ok || key == "" || value == "" {
			r.d.Problem(e.Position, "expected key=value, such as api_key=%%REQ(x-api-key)%%")
			continue
		}
		a := Action{Location: r.at(e.Position), Kind: Format, Key: key, Parts: r.format(e.Position, value), SkipIfAbsent: optional}
		if len(a.Parts) == 1 && a.Parts[0].Attribute == "" {
			a.Kind, a.Value, a.Parts = Text, a.Parts[0].Text, nil
		}
		out.Actions = append(out.Actions, a)
	}
	if strict.Given(&m.entries) && len(m.entries.Value) == 0 {
		r.d.Problem(m.entries.OrElse(f.Position), "at least one entry is needed, such as api_key=%%REQ(x-api-key)%%")
	}
	out.Cost = r.mappedCost(&m.more)
	if m.more.When.Set && !m.more.When.Bad {
		out.When = r.conditions(&m.more.When)
	}
	return out
}

// mappedCost reads a number, or an operator.
func (r *reader) mappedCost(m *descriptorKeys) Cost {
	c := Cost{Refund: m.Refund, Number: 1, Set: strict.Given(&m.Cost)}
	if !c.Set {
		return c
	}
	c.Location = r.at(m.Cost.Position)
	if n, err := strconv.ParseUint(m.Cost.Value, 10, 64); err == nil && n <= MaxCost {
		c.Number = n
		return c
	}
	parts, err := Parse(m.Cost.Value)
	if err != nil || len(parts) != 1 || parts[0].Attribute == "" {
		r.d.Problem(m.Cost.Position, "expected a number from 0 to %d, or one operator such as %%REQ(x-cost)%%", uint64(MaxCost))
		return c
	}
	c.From = parts[0].Attribute
	return c
}

func (r *reader) conditions(f *strict.Field[conditions]) *Match {
	c := &f.Value
	out := &Match{Location: r.at(f.Position)}
	paths := 0
	for _, p := range []struct {
		kind PathKind
		text *strict.Field[string]
	}{{Exact, &c.Path}, {Prefix, &c.PathPrefix}, {Regex, &c.PathRegex}} {
		if p.text.Set {
			paths++
			out.Kind, out.Path = p.kind, p.text.Value
		}
	}
	switch {
	case paths > 1:
		r.d.Problem(f.Position, "expected one of path, path_prefix and path_regex")
	case paths+len(c.Method)+len(c.Host) == 0:
		r.d.Problem(f.Position, "expected a condition: path, path_prefix, path_regex, method or host")
	}
	if strict.Given(&c.PathRegex) {
		r.checkRegex(c.PathRegex.Position, c.PathRegex.Value)
	}
	for _, list := range []struct {
		name  accesslog.Attribute
		texts []string
		fold  bool
	}{{":method", c.Method, false}, {":authority", c.Host, true}} {
		if len(list.texts) > 0 {
			out.Headers = append(out.Headers, Matcher{Location: out.Location, Name: string(list.name), Test: IsOneOf, Texts: list.texts, Fold: list.fold})
		}
	}
	return out
}
