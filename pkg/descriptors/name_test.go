package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	rule := NewRuleID("edge", path("route=search", "api_key"))
	long := strings.Repeat("x", maxPart+1)
	sum := sha256.Sum256([]byte(long))
	digested := Part{Text: hex.EncodeToString(sum[:]), Digest: true}
	for _, tt := range []struct {
		name     string
		tag      string
		rule     RuleID
		identity []string
		want     Name
	}{
		{"plain", "id.acme", rule, []string{"id.acme"}, Name{Tag: Part{Text: "id.acme"}, Rule: rule, Identity: []Part{{Text: "id.acme"}}}},
		{"the rule is the tag", "", rule, nil, Name{Rule: rule}},
		{"an empty part", "", rule, []string{""}, Name{Rule: rule, Identity: []Part{{}}}},
		{"escaped", "}{", rule, []string{"a,b:c%~|!", "\xff"}, Name{Tag: Part{Text: "}{"}, Rule: rule, Identity: []Part{{Text: "a,b:c%~|!"}, {Text: "\xff"}}}},
		{"a long part", long, rule, []string{long, "b"}, Name{Tag: digested, Rule: rule, Identity: []Part{digested, {Text: "b"}}}},
		{
			"a cut tail", "t", rule, slices.Repeat([]string{strings.Repeat("v", 120)}, 6),
			Name{Tag: Part{Text: "t"}, Rule: rule, Identity: slices.Repeat([]Part{{Text: strings.Repeat("v", 120)}}, 3), Cut: true},
		},
		{"a cut rule", "t", rule + RuleID(strings.Repeat("r", 500)), []string{"v"}, Name{Tag: Part{Text: "t"}, Cut: true}},
		{"a cut rule that is the tag", "", rule + RuleID(strings.Repeat("r", 500)), nil, Name{Cut: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := nameOf(t, tt.tag, tt.rule, tt.identity...)
			got, err := ParseKey(key)
			if err != nil {
				t.Fatalf("ParseKey(%q): %v", key, err)
			}
			if got.Tag != tt.want.Tag || got.Rule != tt.want.Rule || got.Cut != tt.want.Cut || !slices.Equal(got.Identity, tt.want.Identity) {
				t.Errorf("ParseKey(%q) =\n%+v, want\n%+v", key, got, tt.want)
			}
		})
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, key := range []string{
		"", "{", "{}:a|b", "{t}", "{t}a|b", "t:a|b", "{t}:ab", "{t}:a|b:%", "{t}:a|b:%4", "{t}:a|b:%41", "{t}:a|b:%2c", "{t}:a|b:~00",
		"{t}:a|b:v:w", "{t}:a|b:v w", "{t}:a|b!", "{t}:a|b:v!" + strings.Repeat("0", 64), "{a|c}:a|b", "{|~" + strings.Repeat("0", 64) + "}:a|b",
		"{t}:a|b:" + strings.Repeat("v", 129), "{t}:a|b:" + strings.Repeat("v,", 400),
	} {
		if n, err := ParseKey(key); !errors.Is(err, ErrNotKey) {
			t.Errorf("ParseKey(%q) = %+v, %v, want ErrNotKey", key, n, err)
		}
	}
}

// FuzzParseKey makes names of logs and parses them, and parses any text.
func FuzzParseKey(f *testing.F) {
	f.Add("t", "edge", "route", "search", "id.acme", "b", "{t}:a|b:c")
	f.Add("", "e:d", "", "%2C", strings.Repeat("v", 400), "~", "{a|b}:a|b!")
	f.Fuzz(func(t *testing.T, tag, domain, key, value, first, second, text string) {
		rule := NewRuleID(domain, []Node{{Key: key, Value: value}, {Key: key, AnyValue: true}})
		name := nameOf(t, tag, rule, first, second)
		n, err := ParseKey(name)
		if err != nil {
			t.Fatalf("ParseKey(%q): %v", name, err)
		}
		parts := []string{first, second}
		if n.Tag.String() != EscapePart(tag) || !n.Cut && len(n.Identity) != 2 || n.Rule != "" && n.Rule != rule || n.Rule == "" && !n.Cut {
			t.Errorf("ParseKey(%q) = %+v, want tag %q, rule %q, identity %q", name, n, tag, rule, parts)
		}
		for i, p := range n.Identity {
			if p.String() != EscapePart(parts[i]) || !p.Digest && p.Text != parts[i] {
				t.Errorf("ParseKey(%q): part %d is %+v, want %q", name, i, p, parts[i])
			}
		}
		if n, err := ParseKey(text); err == nil && !n.Cut {
			if again := n.write(); again != text {
				t.Errorf("ParseKey(%q) = %+v, which is the name %q", text, n, again)
			}
		}
	})
}

// write writes a name that is not cut.
func (n Name) write() string {
	var b strings.Builder
	b.WriteString("{")
	switch {
	case n.Tag != Part{}:
		b.WriteString(n.Tag.String())
	case len(n.Rule) <= maxTag:
		b.WriteString(string(n.Rule))
	default:
		b.Write(appendDigest([]byte("|"), &Text{Value: string(n.Rule)}))
	}
	b.WriteString("}:" + string(n.Rule))
	for i, p := range n.Identity {
		b.WriteString(string(":,"[min(i, 1)]))
		b.WriteString(p.String())
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Descriptor
		err  string
	}{
		{"route=search,api_key=k1", Descriptor{{"route", "search"}, {"api_key", "k1"}}, ""},
		{"a=", Descriptor{{"a", ""}}, ""},
		{"a=b=c", Descriptor{{"a", "b=c"}}, ""},
		{`a\=b=c\,d\\,e=f\g`, Descriptor{{"a=b", `c,d\`}, {"e", `f\g`}}, ""},
		{"", nil, `entry 1 has no =`},
		{"a", nil, `entry 1 has no =`},
		{"a=b,", nil, `entry 2 has no =`},
		{"=b", nil, `entry 1 has no key`},
	} {
		got, err := Parse(tt.text)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Parse(%q) = %q, %v, want %q, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// FuzzParse writes a parsed descriptor as text and parses it again.
func FuzzParse(f *testing.F) {
	f.Add("route=search,api_key=k1")
	f.Add(`a\=b=c\,d\\,e=f\g`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		var parts []string
		for _, e := range d {
			parts = append(parts, Escape(e.Key)+"="+Escape(e.Value))
		}
		again, err := Parse(strings.Join(parts, ","))
		if err != nil || !slices.Equal(d, again) {
			t.Errorf("Parse(%q) = %q, written and read again %q, %v", text, d, again, err)
		}
	})
}
