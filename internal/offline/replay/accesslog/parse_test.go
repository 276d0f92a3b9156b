package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slidegate/slidegate/test/random"
	"github.com/slidegate/slidegate/test/tree"
)

var oracleNames = []string{"time", "path", "a.b", "method", "deep.er.x"}

// twice are names of objects.
var twice = []string{`"a"`, `"b"`, `"deep"`, `"er"`, `\u`}

// oracle returns what encoding/json reads of a line, false if it refuses it.
func oracle(line []byte) (map[string]any, bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, false
	}
	_, err := d.Token()
	return object, errors.Is(err, io.EOF)
}

// same compares a line as the parser and encoding/json read it.
func same(t *testing.T, p *jsonParser, line []byte) {
	t.Helper()
	out := fields{values: make([]Value, len(oracleNames))}
	fault := p.parse(line, &out)
	object, ok := oracle(line)
	if !ok {
		return // the parser may accept it: it does not check what it does not keep
	}
	if fault != "" {
		t.Fatalf("%q: encoding/json accepts it; the parser says %q", line, fault)
	}
	if !utf8.Valid(line) || slices.ContainsFunc(twice, func(name string) bool { return bytes.Count(line, []byte(name)) > 1 }) {
		return // encoding/json replaces bytes that are not UTF-8, and a second object counts beside the first
	}
	for slot, name := range oracleNames {
		var value any = object
		if _, literal := object[name]; literal && strings.Contains(name, ".") {
			continue // which of the two counts depends on their order
		}
		found := true
		for _, part := range strings.Split(name, ".") {
			inner, ok := value.(map[string]any)
			if !ok {
				found = false
				break
			}
			if value, found = inner[part]; !found {
				break
			}
		}
		want := Value{}
		switch v := value.(type) {
		case string:
			want = known([]byte(v))
		case json.Number:
			want = known([]byte(v.String()))
		case bool:
			want = known([]byte(map[bool]string{true: "true", false: "false"}[v]))
		case nil:
			want = Value{State: Absent}
		default:
			if found {
				continue // objects and arrays have tests of their own
			}
		}
		if !found {
			want = Value{}
		}
		if got := out.values[slot]; got.State != want.State || !bytes.Equal(got.Text, want.Text) {
			t.Fatalf("%q: %s is %q (%d), encoding/json has %q (%d)", line, name, got.Text, got.State, want.Text, want.State)
		}
	}
}

var jsonSeeds = []string{
	`{"time":"2026-11-23T09:30:29.123Z","path":"/a\"\\\/\b\f\n\r\té","method":"GET","a":{"b":"c"}}`,
	`{"a":{"b":1},"a":{"c":2},"path":1e5,"path":-0.5E+3,"method":true}`,
	`{"a":{"b":1},"a":3,"deep":{"er":{"x":"😀"},"er":null},"path":"\ud83dx","method":"\udc00\ud83d"}`,
	`{"path":[1,"a",{"x":[]}],"deep":{"er":[{"x":1}]}}`,
	`{"path":{"x":"y"} , "t\u0069me" : null }`, `{}`, `[]`, `null`, `"a"`, `{"a"}`, `{"a":}`, `{"a":01}`, `{"a":1,}`, `{"a":"` + "\x01" + `"}`,
	`{"a":"\x"}`, `{"a":tru}`, `{"a":-}`, `{"a":1.}`, `{"a":1e}`, `{"a":1} x`, `{"a":1}{`, "{\"path\":\"\xff\xfe\"}", "\ufeff{}", "{\"a\":1\x00}",
	`{"path":"a` + strings.Repeat("b", 70) + `","x":123456789012345678901234567890}`,
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	p := newJSONParser(oracleNames)
	f.Fuzz(func(t *testing.T, line []byte) { same(t, p, line) })
}

const special = "\"\\{}[]:,-.0eu \x00\xff\n%$"

// mutate changes a few bytes.
func mutate(r *rand.Rand, b []byte, others []string) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(4) {
		at := r.IntN(len(b) + 1)
		switch r.IntN(5) {
		case 0:
			b = append(b[:at:at], b[min(len(b), at+1+r.IntN(4)):]...)
		case 1:
			b = append(b[:at:at], append([]byte{special[r.IntN(len(special))]}, b[at:]...)...)
		case 2:
			if at < len(b) {
				b[at] = byte(r.IntN(256))
			}
		case 3:
			end := at + r.IntN(len(b)-at+1)
			b = append(b[:end:end], b[at:]...)
		default:
			o := others[r.IntN(len(others))]
			b = append(b[:at:at], o[r.IntN(len(o)+1):]...)
		}
	}
	return b
}

func TestJSONAsEncodingJSON(t *testing.T) {
	p := newJSONParser(oracleNames)
	for _, s := range jsonSeeds {
		same(t, p, []byte(s))
	}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		line := []byte(jsonSeeds[r.IntN(len(jsonSeeds))])
		for range 20 {
			same(t, p, line)
			if line = mutate(r, line, jsonSeeds); len(line) > 1<<12 {
				line = line[:1<<10]
			}
		}
	}
	for _, open := range []string{`{"a":`, `{"x":[`, `{"x":"`, `{"deep":{"er":{"x":[`, `{"path":[`} {
		for _, line := range []string{open, strings.Repeat(open, 100_000), `{"path":"/a"` + open} {
			if fault := p.parse([]byte(line), &fields{values: make([]Value, len(oracleNames))}); fault == "" {
				t.Errorf("%.40s is read, which has no end", line)
			}
		}
	}
}

var textSeeds = []string{
	`[2026-11-23T09:48:33.759Z] "GET /search?q=a%20b&x=1 HTTP/1.1" 200 - 0 0 0 - "-" "Mozilla/5.0 (X11) "quoted"" "f97a48a4" "127.0.0.1:45089" "-"`,
	`10.0.0.1 - - [23/Nov/2026:09:48:33 +0100] "GET /\x22 HTTP/1.1" 200 12 "-" "a\x5cb"`,
	`10.0.0.1 - bob [23/Nov/2026:09:48:33 +0100] "\x16\x03" 400 12`,
	`%START_TIME(%s.%3f)% %REQ(X?Y)%|%%|%PATH(NQ:ORIG):10%`, `$msec ${http_x_y}|$request_time`, "1795427313.759 a|%|-", "1795427313.759 a|0.003",
}

// formatsFor returns all formats, and those of texts that are formats.
func formatsFor(t *testing.T, texts ...string) []*format {
	t.Helper()
	list, err := candidates(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if f, err := newTextFormat("given", text); err == nil {
			list = append(list, f)
		}
	}
	return list
}

var allWanted = []Attribute{Path, PathOnly, Method, Protocol, Client, Peer, Duration, Header("x-y"), "REQ(x?y)"}

// readable decodes a line by every format, and checks what must hold for any line.
func readable(t *testing.T, list []*format, line []byte) {
	t.Helper()
	for _, f := range list {
		d, err := f.newDecoder(allWanted)
		if err != nil {
			continue
		}
		at, is, fault := d.decode(line)
		if (is == isBroken) != (fault != "") {
			t.Fatalf("%s: %q: outcome %d, fault %q", f.name, line, is, fault)
		}
		if is != isRequest {
			continue
		}
		if at < 0 || at >= latest {
			t.Fatalf("%s: %q: at %d", f.name, line, at)
		}
		r := Record{Values: make([]Value, len(allWanted))}
		readRecord(&r, at, d.appendRecord(nil, 3, 7))
		for i, v := range r.Values {
			if (v.State == Present) != (len(v.Text) > 0) || r.File != 3 || r.Line != 7 {
				t.Fatalf("%s: %q: %s is %q in state %d", f.name, line, allWanted[i], v.Text, v.State)
			}
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range textSeeds {
		f.Add(s, []byte(textSeeds[0]))
	}
	f.Fuzz(func(t *testing.T, format string, line []byte) { readable(t, formatsFor(t, format), line) })
}

func TestTextOfAnyBytes(t *testing.T) {
	for seed := range uint64(random.Steps(t, 200, 1000)) {
		r := rand.New(rand.NewPCG(seed, 2))
		line := []byte(textSeeds[r.IntN(len(textSeeds))])
		format := string(mutate(r, []byte(textSeeds[3+r.IntN(2)]), textSeeds))
		list := formatsFor(t, format, textSeeds[3], textSeeds[4])
		for range 10 {
			readable(t, list, line)
			if line = mutate(r, line, textSeeds); len(line) > 1<<11 {
				line = line[:1<<9]
			}
		}
	}
}

// TestPrefixOfAnyBytes strips what looks like a prefix. A line is never longer than before.
func TestPrefixOfAnyBytes(t *testing.T) {
	seeds := []string{
		"2026-05-26T01:50:01.000007919Z stdout P " + textSeeds[1], "<190>1 2026-05-26T01:50:01.003Z a nginx - ID47 [a@1 b=\"c\\]d\"] \ufeffx", "<30>May  6 01:50:01 a b[12]: x",
		`{"log":"[pod/a/b] 2026-05-26T01:50:01Z x\n","stream":"stderr"}`, `{"message":"a-1  | www.example.com:443 192.0.2.7 -","logtag":"P"}`, "- [::1]:80 ::1 -", "a 192.0.2.7",
	}
	for seed := range uint64(random.Steps(t, 200, 1000)) {
		r := rand.New(rand.NewPCG(seed, 4))
		line := []byte(seeds[r.IntN(len(seeds))])
		for range 10 {
			for _, chain := range prefixesOf(line) {
				p := newPrefix(chain)
				if rest, _ := p.strip(line); len(rest) > len(line) {
					t.Fatalf("%q: %q is longer", line, rest)
				}
			}
			line = mutate(r, line, seeds)
		}
	}
}

// TestTimes reads times in the usual forms.
func TestTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"1795427313": 1795427313e9, "1795427313.759": 1795427313759e6, "1795427313759": 1795427313759e6, "1795427313759.5": 17954273137595e5,
		"1795427313759123": 1795427313759123e3, "1795427313759123456": 1795427313759123456, "0": 0,
		"2024-02-29T00:00:00Z": 1709164800e9, "1970-01-01T00:00:00+00:00": 0, "2024-02-29T02:00:00.000000001+02:00": 1709164800e9 + 1,
		"29/Feb/2024:02:00:00 +0200": 1709164800e9, "2024-02-29 02:00:00.5+0200": 1709164800e9 + 5e8, "2024-02-29T00:00:00.5+0000": 1709164800e9 + 5e8,
	} {
		if got, ok := parseTime([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d (%v), want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "-", "x", "-1", "1969-12-31T23:59:59Z", "2101-01-01T00:00:00Z", "12026-11-23T00:00:00Z", "2026-13-01T00:00:00Z", "2026-02-29T00:00:00Z",
		"2026-11-23T24:00:00Z", "2026-11-23T09:00:00", "99999999999999999999", "1.7e9", "NaN", "1e99", "2026-11-23T09:00:00.Z", "2026-11-23T09:00:00Zx",
	} {
		if got, ok := parseTime([]byte(text)); ok {
			t.Errorf("%s is read as %d", text, got)
		}
	}
}

// TestTimeLayouts reads times in formats of START_TIME. Zero: the text is no time of the format.
func TestTimeLayouts(t *testing.T) {
	for _, c := range []struct {
		format, text string
		want         int64
	}{
		{"%s", "1795427313", 1795427313e9},
		{"%s.%3f", "1795427313.759", 1795427313759e6},
		{"%s%3f", "1795427313759", 1795427313759e6},
		{"%s%9f", "1795427313759000001", 1795427313759000001},
		{"%Y-%m-%d %H:%M", "2024-02-29 00:30", 1709166600e9},
		{"%Y-%j %H:%M", "2024-060 00:30", 1709166600e9},
		{"%Y-%m-%d (%j) %H:%M", "2024-02-29 (060) 00:30", 1709166600e9},
		{"%e %b %Y %H", "29 Feb 2024 00", 1709164800e9},
		{"%e %b %Y %H", " 1 Mar 2024 00", 1709251200e9},
		{"%e %b %Y %H", "  Mar 2024 00", 0},
		{"%e %b %Y %I %p", "29 Feb 2024 12 AM", 1709164800e9},
		{"%d %B %Y %H %z", "29 february 2024 02 +0200", 1709164800e9},
	} {
		layout, err := layoutOf(c.format)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := parseLayout(layout, []byte(c.text))
		if ok != (c.want > 0) || ok && got != c.want {
			t.Errorf("%s: %q is %d (%v), want %d", c.format, c.text, got, ok, c.want)
		}
	}
}

var benchLines = []struct{ name, line string }{
	{"json", `{"client":"10.0.1.2","degraded":null,"details":"via_upstream","duration_ms":3,"flags":"-","grpc_status":null,"limit":100,"method":"GET","path":"/search/1","protocol":"HTTP/1.1","remaining":97,"request_id":"f97a48a4-320f-45ea-8f00-8df8d2cc9563","retry_after":null,"rule":"per-key","shadowed":null,"status":200,"subject":"customer-1","tier":"gold","time":"2026-11-23T09:48:33.759Z","upstream":"127.0.0.1:8080"}`},
	{"envoy", textSeeds[0]},
	{"nginx", textSeeds[1]},
}

// lineDecoder returns a decoder for a line, with a describer's usual wants.
func lineDecoder(t testing.TB, line string) *decoder {
	list, err := candidates(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		d, err := f.newDecoder([]Attribute{Method, PathOnly, Client, Subject})
		if err != nil {
			t.Fatal(err)
		}
		if _, is, _ := d.decode([]byte(line)); is == isRequest {
			return d
		}
	}
	t.Fatalf("no format reads %s", line)
	return nil
}

func TestNoAllocations(t *testing.T) {
	for _, l := range benchLines {
		d, line, out := lineDecoder(t, l.line), []byte(l.line), make([]byte, 0, 1<<10)
		if n := testing.AllocsPerRun(100, func() {
			d.decode(line)
			out = d.appendRecord(out[:0], 0, 1)
		}); n > 0 {
			t.Errorf("%s: %v allocations", l.name, n)
		}
	}
}

// TestShippedNames holds the names to the Envoy files of the project.
func TestShippedNames(t *testing.T) {
	paths, err := filepath.Glob("../../../../envoy/*.yaml")
	if err != nil || len(paths) < 6 {
		t.Fatalf("%q, %v", paths, err)
	}
	paths = append(paths, "../../../../deploy/kubernetes/try/envoy/envoy.yaml", "../../../../deploy/helm/slidegate-sidecar/templates/_envoy.tpl")
	entry := regexp.MustCompile(`^\s+([a-z_]+): "?(%.+%)"?$`)
	found := make(map[field]bool)
	for _, path := range paths {
		content := tree.Text(t, path)
		_, after, ok := strings.Cut(content, "json_format:\n")
		if !ok {
			t.Errorf("%s has no json_format", path)
		}
		n, subject, digest := 0, false, false
		for line := range strings.Lines(after) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			m := entry.FindStringSubmatch(line)
			if m == nil {
				break
			}
			n++
			a, err := Parse(m[2])
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			f := field{m[1], a}
			found[f] = true
			subject, digest = subject || a == Subject, digest || a == KeyDigest
		}
		if n < 15 || subject != digest {
			t.Errorf("%s: %d fields; subject is %v, and key_digest, which tells a key without a subject, %v", path, n, subject, digest)
		}
	}
	for _, f := range shipped {
		if !found[f] {
			t.Errorf("%s is %s in no file", f.name, f.attribute)
		}
	}
}

// TestMappedFields: all that is wrong with the fields of a caller is told at once.
func TestMappedFields(t *testing.T) {
	_, err := candidates(&Options{Fields: map[string]Attribute{"": "REQ(:path)", "a": "START_TIME(%!)", "b": "req", "c": "EMIT_TIME(%Q)"}})
	for _, want := range []string{"has no name", `"a": `, `"b": `, `"c": `} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// TestParse lists operators that mean the same.
func TestParse(t *testing.T) {
	for operator, want := range map[string]Attribute{
		"%REQ(X-Tenant)%": Header("x-tenant"), "%REQUEST_HEADER(:METHOD)%": Method, "REQ(:PATH)": Path, "%PATH%": OriginalOrPath, "%PATH(WQ)%": OriginalOrPath,
		"%PATH(WQ:ORIG_OR_PATH)%": OriginalOrPath, "%PATH(WQ:PATH)%": Path, "%PATH(WQ:ORIG)%": originalPath, "%PATH(NQ)%": PathOnly, "%PATH(NQ:ORIG_OR_PATH)%": PathOnly,
		"%PATH(NQ:PATH)%": rewrittenPathOnly, "%REQ_WITHOUT_QUERY(:PATH)%": rewrittenPathOnly, "%REQ_WITHOUT_QUERY(X-ENVOY-ORIGINAL-PATH?:PATH)%": PathOnly,
		"%REQ(X):10%": "REQ(x):10", "%METADATA(DYNAMIC:a:b)%": Metadata("a", "b"), "%START_TIME(%s)%": "START_TIME(%s)", "%DURATION%": Duration, "%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%": Details,
	} {
		if got, err := Parse(operator); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", operator, got, err, want)
		}
	}
	for _, operator := range []string{"", "%", "%%", "req(x)", "%REQ(x%", "%REQ(x)y%", "A B", "REQ" + strings.Repeat("X", 2000)} {
		if got, err := Parse(operator); err == nil {
			t.Errorf("%q: %s", operator, got)
		}
	}
}
