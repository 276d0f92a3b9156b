package accesslog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// templateValues are values of JSON that a member can have in one line and not in the next.
var templateValues = []string{
	"1", "12", "-0.5", "1e3", "null", "true", "false", `""`, `"-"`, `"a"`, `"ab"`, `"a\"b"`, `"\u0061"`, "[]", `["a","b"]`, "{}", `{"b":1}`, `{"b":12,"c":"x"}`, `{"b":{"x":"y"}}`,
	"01", "tru", "", `"a`, `{"b":1`, "[1", "1,", `"a"b"`, // broken ones
}

// TestTemplates reads lines with the same members, of which some values differ, by a parser that
// knows the earlier lines and by one that does not. Both say the same.
func TestTemplates(t *testing.T) {
	names := []string{"path", "a", "x", "method", "time", "deep", "y"}
	for _, seed := range []uint64{1, 2, 3} {
		r := rand.New(rand.NewPCG(seed, 7))
		p := newJSONParser(oracleNames)
		values := make([]string, 90)
		for n := range 3000 {
			if n%1000 == 0 { // another log
				r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				values = values[:1+r.IntN(12)*r.IntN(8)]
				for i := range values {
					values[i] = templateValues[r.IntN(20)]
				}
			}
			for range r.IntN(3) {
				values[r.IntN(len(values))] = templateValues[r.IntN(20)]
			}
			line := []byte("{")
			for i, v := range values {
				if r.IntN(400) == 0 {
					v = templateValues[r.IntN(len(templateValues))]
				}
				name, space, comma := names[i%len(names)], "", ","
				if i >= len(names) {
					name = fmt.Sprint(name, i)
				}
				if r.IntN(200) == 0 {
					space = strings.Repeat(" ", r.IntN(3))
				}
				if i == len(values)-1 {
					comma = ""
				}
				line = fmt.Appendf(line, `"%s":%s%s%s%s`, name, space, v, space, comma)
			}
			line = append(line, '}')
			if r.IntN(200) == 0 {
				line = mutate(r, line, jsonSeeds)
			}
			sameAsNew(t, p, line)
		}
	}
}

// sameAsNew compares what a parser says of a line with what a new one says.
func sameAsNew(t *testing.T, p *jsonParser, line []byte) {
	t.Helper()
	got, want := fields{values: make([]Value, len(oracleNames))}, fields{values: make([]Value, len(oracleNames))}
	gotFault, wantFault := p.parse(line, &got), newJSONParser(oracleNames).parse(line, &want)
	if gotFault != wantFault || got.at != want.at {
		t.Fatalf("%q: %q at %d, a new parser says %q at %d", line, gotFault, got.at, wantFault, want.at)
	}
	equal := func(a, b Value) bool { return a.State == b.State && bytes.Equal(a.Text, b.Text) }
	if gotFault == "" && !slices.EqualFunc(got.values, want.values, equal) {
		t.Fatalf("%q: %q, a new parser reads %q", line, got.values, want.values)
	}
	same(t, p, line)
}
