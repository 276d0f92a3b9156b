package clientaddr

import (
	"net/netip"
	"testing"
)

// TestParse reads each spelling of an address, and texts that have none.
func TestParse(t *testing.T) {
	for want, texts := range map[string][]string{
		"2001:db8::9": {
			"2001:db8::9", "2001:DB8:0:0::9", "[2001:db8::9]", "[2001:db8::9]:443", "[2001:db8::9]:", "[2001:db8::9]:_gone", `"[2001:db8::9]"`,
			`"[2001:DB8::9]:443"`, "\t [2001:db8::9] \t", "2001:db8::9%eth0", "[2001:db8::9%eth0]:443", `"2001:db8::9"`,
		},
		"192.0.2.1": {
			"192.0.2.1", "192.0.2.1:443", " 192.0.2.1:443 ", "192.0.2.1:", "192.0.2.1:_port-1.x", `"192.0.2.1"`, `"192.0.2.1:443"`,
			"::ffff:192.0.2.1", "::FFFF:C000:0201", "[::ffff:192.0.2.1]:443", "[192.0.2.1]", "[192.0.2.1]:443",
		},
		"": {
			"", " ", "unknown", "_hidden", `"_hidden"`, "-", "@", "unix:", "/run/x.sock", "localhost", "192.0.2", "192.0.2.1, 192.0.2.2", "192.0.2.1:x",
			"192.0.2.1:4:4", "[2001:db8::9", "2001:db8::9]", "[2001:db8::9]443", "[2001:db8::9]:443:443", "[[2001:db8::9]]", "[]", "[]:443", ":443", ":",
			`"`, `""`, `"192.0.2.1`, "192.0.2.1/32", "for=192.0.2.1", "192.0.2.1\x00", "192.0.2.1\n", "١٩٢.0.2.1",
		},
	} {
		for _, text := range texts {
			if got, ok := Parse(text); ok != (want != "") || ok && got.String() != want {
				t.Errorf("Parse(%q) = %v, %v; want %q", text, got, ok, want)
			}
			if a, b := Host(text), string(Host([]byte(text))); a != b {
				t.Errorf("Host(%q) is %q, and %q of bytes", text, a, b)
			}
		}
	}
}

// FuzzParse: no text makes Parse panic, and an address stays itself in each of its spellings.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"[2001:db8::9]:443", `"192.0.2.1:_x"`, "fe80::1%eth0", "]:[", `"["`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := Parse(text)
		if !ok {
			return
		}
		for _, again := range []string{a.String(), "[" + a.String() + "]", netip.AddrPortFrom(a, 443).String(), `"` + a.String() + `"`} {
			if b, ok := Parse(again); !ok || a != b {
				t.Errorf("Parse(%q) is %v, and %v of %q", text, a, b, again)
			}
		}
	})
}
