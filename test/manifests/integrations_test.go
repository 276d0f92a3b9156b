package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// integrations is where the snippets for other control planes are.
const integrations = root + "/deploy/integrations"

// These are the parts of the snippets that make descriptors. The fields of several projects are in one type.
type (
	// An entry makes one key and value of a descriptor.
	entry struct {
		GenericKey    *genericKey    `json:"genericKey"`
		RequestHeader *requestHeader `json:"requestHeader"`
		// Envoy names it in the plural.
		RequestHeaders *requestHeader `json:"requestHeaders"`
		RemoteAddress  *struct{}      `json:"remoteAddress"`
		Metadata       *requestHeader `json:"metadata"`

		// kgateway:
		Type    string      `json:"type"`
		Generic *genericKey `json:"generic"`
		Header  string      `json:"header"`

		// agentgateway:
		Name       string `json:"name"`
		Expression string `json:"expression"`
	}
	genericKey struct {
		Key             string `json:"key"`
		Value           string `json:"value"`
		DescriptorKey   string `json:"descriptorKey"`
		DescriptorValue string `json:"descriptorValue"`
	}
	requestHeader struct {
		HeaderName    string `json:"headerName"`
		DescriptorKey string `json:"descriptorKey"`
	}
)

// String returns an entry as rls explain takes it, for a client with the address 192.0.2.1 and the key k1.
func (e entry) String() string {
	header := e.RequestHeader
	if header == nil {
		header = e.RequestHeaders
	}
	generic := e.GenericKey
	if generic == nil {
		generic = e.Generic
	}
	switch {
	case header != nil:
		return header.DescriptorKey + "=k1"
	case generic != nil && generic.Key+generic.DescriptorKey == "":
		return "generic_key=" + generic.Value + generic.DescriptorValue
	case generic != nil:
		return generic.Key + generic.DescriptorKey + "=" + generic.Value + generic.DescriptorValue
	case e.Expression != "":
		return e.Name + "=acme"
	case e.Metadata != nil:
		return e.Metadata.DescriptorKey + "=acme"
	case e.Header != "":
		return e.Header + "=k1"
	case e.RemoteAddress != nil || e.Type == "RemoteAddress":
		return "remote_address=192.0.2.1"
	}
	return "no kind of entry that this test knows"
}

// descriptorsOf returns all descriptors that an object makes: lists of entries or actions, wherever they are. oneOnly is
// for kgateway, which joins the descriptors of a list into one.
func descriptorsOf(t *testing.T, value any, oneOnly bool) []string {
	t.Helper()
	var out []string
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			list, ok := inner.([]any)
			switch {
			case ok && (name == "entries" || name == "actions"):
				out = append(out, joined(t, list))
			case ok && name == "descriptors" && oneOnly && len(list) > 1:
				t.Errorf("%d descriptors in a list: kgateway makes one of them all", len(list))
			default:
				out = append(out, descriptorsOf(t, inner, oneOnly)...)
			}
		}
	case []any:
		for _, inner := range v {
			out = append(out, descriptorsOf(t, inner, oneOnly)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// joined returns the descriptor of a list of entries. Envoy's own configuration has names with underscores.
func joined(t *testing.T, list []any) string {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for old, name := range map[string]string{
		"generic_key": "genericKey", "request_headers": "requestHeaders", "remote_address": "remoteAddress",
		"descriptor_key": "descriptorKey", "descriptor_value": "descriptorValue", "header_name": "headerName",
	} {
		text = []byte(strings.ReplaceAll(string(text), `"`+old+`":`, `"`+name+`":`))
	}
	var entries []entry
	if err := json.Unmarshal(text, &entries); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.String())
	}
	return strings.Join(parts, ",")
}

// oneHop returns the descriptors that contexts of authorization name. Contour has another name for them.
func oneHop(value any) []string {
	if list, ok := value.([]any); ok {
		var out []string
		for _, inner := range list {
			out = append(out, oneHop(inner)...)
		}
		return out
	}
	v, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	inner, ok := v["contextExtensions"].(map[string]any)
	if !ok {
		inner, ok = v["context"].(map[string]any)
	}
	if ok {
		names, _ := inner["descriptors"].(string)
		var out []string
		for descriptor := range strings.SplitSeq(names, ";") {
			var parts []string
			for name := range strings.SplitSeq(descriptor, ",") {
				of, given := inner[name].(string)
				switch {
				case given:
				case name == "remote_address":
					of = "192.0.2.1"
				default:
					of = "k1"
				}
				parts = append(parts, name+"="+of)
			}
			out = append(out, strings.Join(parts, ","))
		}
		return out
	}
	var out []string
	for _, inner := range v {
		out = append(out, oneHop(inner)...)
	}
	return out
}

// domainsOf returns the texts of all fields with the name domain.
func domainsOf(value any) []string {
	var out []string
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if text, ok := inner.(string); ok && name == "domain" {
				out = append(out, text)
			}
			out = append(out, domainsOf(inner)...)
		}
	case []any:
		for _, inner := range v {
			out = append(out, domainsOf(inner)...)
		}
	}
	return out
}

// TestRules proves that the rules beside each snippet are valid, and have a limit for every descriptor that the snippet
// sends.
func TestRules(t *testing.T) {
	files, err := filepath.Glob(integrations + "/*/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{"istio": 6, "contour": 3, "kgateway": 4, "agentgateway": 1}
	for _, rules := range files {
		dir := filepath.Dir(rules)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			found, domain := snippets(t, dir, name == "kgateway")
			if len(found) != sent[name] {
				t.Errorf("the snippets send %q, want %d descriptors", found, sent[name])
			}
			for _, d := range found {
				if lines := explained(t, rules, domain, d); !strings.Contains(lines, "has room, ") {
					t.Errorf("%s: no limit:\n%s", d, lines)
				}
			}
		})
		delete(sent, name)
	}
	for name := range sent {
		t.Errorf("%s has no rules.yaml", name)
	}
}

// explained returns what rls explain prints about a descriptor.
func explained(t *testing.T, rules, domain, descriptor string) string {
	t.Helper()
	entries, err := descriptors.Parse(descriptor)
	if err != nil {
		t.Fatalf("%s: %v", descriptor, err)
	}
	generation, err := load(rules)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }() // the store is only for this answer
	request := decide.Request{Domain: domain, Descriptors: []decide.Descriptor{{Entries: entries, Cost: 1}}}
	answer, err := explain.Explain(t.Context(), decide.NewDecider(generation.Rules, decide.Options{Store: store}), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(answer.Lines, "\n")
}

// load reads files of rules and of tiers as rls validate does.
func load(paths ...string) (*config.Generation, error) {
	in, err := config.NewInput(paths, nil)
	if err != nil {
		return nil, err
	}
	return in.Load(settings.Default())
}

// snippets returns the descriptors that the files of a directory send, and their domain.
func snippets(t *testing.T, dir string, oneOnly bool) (sent []string, domain string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := parse(text)
		if err != nil {
			continue // rules or values
		}
		for _, o := range objects {
			sent = append(sent, descriptorsOf(t, o.value, oneOnly)...)
			sent = append(sent, oneHop(o.value)...)
			for _, d := range domainsOf(o.value) {
				if domain != "" && domain != d {
					t.Errorf("%s: the domain is %s, and %s elsewhere", file, d, domain)
				}
				domain = d
			}
		}
	}
	slices.Sort(sent)
	return slices.Compact(sent), domain
}
