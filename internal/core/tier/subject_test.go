package tier

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/core/tier/strictjson"
)

// readFlags is a language of overrides for tests: an object of rule names, whose
// values are all unlimited.
func readFlags(data []byte) (map[string]Override, error) {
	overrides := make(map[string]Override)
	return overrides, strictjson.Object(data, func(name string, _ json.RawMessage) error {
		overrides[name] = Override{Unlimited: true}
		return nil
	})
}

func TestNewSubject(t *testing.T) {
	longest := strings.Repeat("x", MaxText)
	for _, tt := range []struct {
		parts Parts
		want  Subject
	}{
		{Parts{ID: "acme"}, Subject{ID: "acme"}},
		{Parts{ID: longest, Tier: longest, Disabled: true}, Subject{ID: longest, Tier: longest, Disabled: true}},
		{Parts{ID: `a b:"c"%\~!`, Tier: "größer"}, Subject{ID: `a b:"c"%\~!`, Tier: "größer"}},
		{Parts{ID: "a", Overrides: []byte(" null "), Labels: []byte("\n")}, Subject{ID: "a"}},
		{Parts{ID: "a", Overrides: []byte("{}"), Labels: []byte("{}")}, Subject{ID: "a"}},
		{
			Parts{ID: "a", Overrides: []byte(`{"export":1}`)},
			Subject{ID: "a", Extra: &Extra{Overrides: map[string]Override{"export": {Unlimited: true}}}},
		},
		{
			Parts{ID: "a", Labels: []byte(` {"region":"eu","a.B_-9":"","who":"Ünı \u00e9"} `)},
			Subject{ID: "a", Extra: &Extra{Labels: map[string]string{"region": "eu", "a.B_-9": "", "who": "Ünı é"}}},
		},
	} {
		got, err := NewSubject(tt.parts, readFlags)
		if err != nil {
			t.Errorf("NewSubject(%+v): %v", tt.parts, err)
			continue
		}
		if got.Extra != nil && len(got.Extra.Overrides) == 0 {
			got.Extra.Overrides = nil
		}
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("NewSubject(%+v): (-want +got)\n%s", tt.parts, diff)
		}
	}
}

func TestNewSubjectRefuses(t *testing.T) {
	const key = "sk-planted"
	many := make(map[string]string)
	for i := range MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	tooMany, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		parts Parts
		want  string
	}{
		{Parts{}, "id: it is empty"},
		{Parts{ID: strings.Repeat("x", MaxText+1)}, "id: 257 bytes, at most 256"},
		{Parts{ID: "ip:192.0.2.7"}, "id: it begins with \"ip:\""},
		{Parts{ID: " a"}, "id: it begins or ends with a space"},
		{Parts{ID: "a "}, "id: it begins or ends with a space"},
		{Parts{ID: key + "é"}, "id: byte 11 is 0xc3"},
		{Parts{ID: key + "\n"}, "id: byte 11 is 0x0a"},
		{Parts{ID: "\x7f"}, "id: byte 1 is 0x7f"},
		{Parts{ID: "a", Tier: strings.Repeat("x", MaxText+1)}, "tier: 257 bytes, at most 256"},
		{Parts{ID: "a", Tier: "\xff"}, "tier: it is not UTF-8"},
		{Parts{ID: "a", Tier: key + "\u0085"}, "tier: byte 11 is a control character"},
		{Parts{ID: "a", Overrides: []byte("[]")}, "overrides: it is no JSON object"},
		{Parts{ID: "a", Overrides: make([]byte, MaxPart+1)}, "overrides: 65537 bytes, at most 65536"},
		{Parts{ID: "a", Labels: []byte(strings.Repeat(" ", MaxPart) + "{")}, "labels: 65537 bytes, at most 65536"},
		{Parts{ID: "a", Labels: tooMany}, "labels: 33 labels, at most 32"},
		{Parts{ID: "a", Labels: []byte(`"` + key + `"`)}, "labels: it is no JSON object"},
		{Parts{ID: "a", Labels: []byte(key)}, "labels: it is not JSON from byte 1 on"},
		{Parts{ID: "a", Labels: []byte(`{"a":"b"`)}, "labels: it is not JSON from byte 9 on"},
		{Parts{ID: "a", Labels: []byte(`{"a":"b"} {}`)}, "labels: something stands behind"},
		{Parts{ID: "a", Labels: []byte(`{"a":"b"} ` + key)}, "labels: something stands behind"},
		{Parts{ID: "a", Labels: []byte(`{"a":"b","\u0061":"c"}`)}, "labels: member 2 has the name of an earlier one"},
		{Parts{ID: "a", Labels: []byte(`{"a":1}`)}, "labels: a: it is no text"},
		{Parts{ID: "a", Labels: []byte(`{"` + key + `?":1}`)}, "labels: it is no text"},
		{Parts{ID: "a", Labels: []byte(`{"a":null}`)}, "labels: a: it is no text"},
		{Parts{ID: "a", Labels: []byte(`{"` + key + ` ":""}`)}, "labels: a name is not"},
		{Parts{ID: "a", Labels: []byte(`{"":""}`)}, "labels: a name is not"},
		{Parts{ID: "a", Labels: []byte(`{"` + strings.Repeat("x", MaxLabelName+1) + `":""}`)}, "labels: a name is not"},
		{Parts{ID: "a", Labels: []byte(`{"a":"` + key + `\n"}`)}, "labels: a: byte 11 is a control character"},
		{Parts{ID: "a", Labels: []byte("{\"a\":\"\xff\"}")}, "labels: it is not UTF-8"},
		{Parts{ID: "a", Labels: []byte(`{"a":"` + strings.Repeat("x", MaxText+1) + `"}`)}, "labels: a: 257 bytes"},
		{Parts{ID: "a", Limits: []byte(`[]`)}, "limits: it is no JSON object"},
		{Parts{ID: "a", Limits: []byte(`{"` + key + `":{}}`)}, "limits: a member is neither limit nor limits"},
		{Parts{ID: "a", Limits: []byte(`{"limit":5}`)}, "limits: limit: it is no JSON object"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{}}`)}, "limits: limit: it needs unit and requests_per_unit"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":"day","requests_per_unit":0}}`)}, "limits: limit: requests_per_unit: 0 would deny all"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":"day","requests_per_unit":4294967296}}`)}, "limits: limit: requests_per_unit: above 4294967295"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":"day","requests_per_unit":"5"}}`)}, "limits: limit: requests_per_unit: it is no whole number"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":"day","requests_per_unit":1.5}}`)}, "limits: limit: requests_per_unit: it is no whole number"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":"week","requests_per_unit":5}}`)}, "limits: limit: unit: not a unit that Envoy can send"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"unit":7,"requests_per_unit":5}}`)}, "limits: limit: unit: it is no text"},
		{Parts{ID: "a", Limits: []byte(`{"limit":{"window":"90s","requests":5}}`)}, "limits: limit: a member is neither unit nor requests_per_unit"},
		{Parts{ID: "a", Limits: []byte(`{"limits":{"tokens":{"unit":"day"}}}`)}, "limits: limits: tokens: it needs unit"},
		{Parts{ID: "a", Limits: []byte(`{"limits":{"` + key + ` ":{}}}`)}, "limits: limits: a name is not 1 to 64"},
	} {
		s, err := NewSubject(tt.parts, readFlags)
		if s != nil || !errors.Is(err, ErrBadRecord) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewSubject(%.80q) = %v, %v; want a bad record, %q", fmt.Sprint(tt.parts), s, err, tt.want)
		} else if strings.Contains(err.Error(), key) {
			t.Errorf("the error repeats what may be a key: %v", err)
		}
	}
}

// TestDisabledWhateverElse proves that a misspelt label does not keep the keys of a
// disabled subject valid.
func TestDisabledWhateverElse(t *testing.T) {
	for _, p := range []Parts{
		{ID: "acme", Disabled: true, Tier: "\xff"},
		{ID: "acme", Disabled: true, Labels: []byte(`{"region":5}`)},
		{ID: "acme", Disabled: true, Overrides: []byte("[]")},
		{ID: "acme", Disabled: true, Limits: []byte("[]")},
	} {
		s, err := NewSubject(p, readFlags)
		if err != nil || s.ID != "acme" || !s.Disabled {
			t.Errorf("NewSubject(%v) = %+v, %v, want a disabled subject", p, s, err)
		}
		p.Disabled = false
		if _, err := NewSubject(p, readFlags); !errors.Is(err, ErrBadRecord) || !strings.Contains(err.Error(), `subject "acme"`) {
			t.Errorf("not disabled: %v, want a bad record of acme", err)
		}
	}
}

func FuzzNewSubject(f *testing.F) {
	f.Add("acme", "pro", false, []byte(`{"export":1}`), []byte(`{"region":"eu"}`))
	f.Add("a\n", "\xff", true, []byte("null"), []byte(`{"a":"b","a":"c"}`))
	f.Add("x", "", false, []byte("["), []byte(`{"a":{"b":["c"]}} x`))
	f.Add("0", "0", true, []byte("0"), []byte("0"))
	f.Add("y", "free", false, []byte("{}"), []byte(`{"limit":{"unit":"day","requests_per_unit":5}}`))
	f.Fuzz(func(t *testing.T, id, name string, disabled bool, overrides, labels []byte) {
		s, err := NewSubject(Parts{ID: id, Tier: name, Disabled: disabled, Overrides: overrides, Labels: labels, Limits: labels}, readFlags)
		if (s == nil) == (err == nil) || err != nil && !errors.Is(err, ErrBadRecord) {
			t.Fatalf("NewSubject = %v, %v", s, err)
		}
		if disabled && err != nil && ValidID(id) == nil {
			t.Errorf("a disabled subject is an error: %v", err)
		}
		if s == nil || *s == (Subject{ID: id, Disabled: true}) {
			return // the other parts of a disabled subject do not matter
		}
		if s.ID != id || s.Tier != name || s.Disabled != disabled || ValidID(s.ID) != nil || ValidLabels(s.Labels()) != nil {
			t.Errorf("NewSubject let pass %+v", s)
		}
		var want map[string]string
		if !isEmpty(labels) && json.Unmarshal(labels, &want) != nil {
			t.Errorf("labels %q are no object of texts", labels)
		}
		for name, value := range want {
			if s.Labels()[name] != value {
				t.Errorf("label %q = %q, want %q", name, s.Labels()[name], value)
			}
		}
	})
}
