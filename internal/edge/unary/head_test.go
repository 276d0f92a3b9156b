package unary

import (
	"math"
	"testing"
	"time"
)

func TestParseTimeout(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"20m", 20 * time.Millisecond, true},
		{"1H", time.Hour, true},
		{"0S", 0, true},
		{"99999999n", 99999999, true},
		{"7u", 7 * time.Microsecond, true},
		{"3M", 3 * time.Minute, true},
		{"99999999H", math.MaxInt64, true}, // more than fits
		{"", 0, false},
		{"m", 0, false},
		{"123456789m", 0, false}, // 9 digits
		{"1s", 0, false},
		{"1 m", 0, false},
		{"-1m", 0, false},
		{"+1m", 0, false},
		{"1.5S", 0, false},
	} {
		if got, ok := parseTimeout(tt.text); got != tt.want || ok != tt.ok {
			t.Errorf("%q is %v, %v; want %v, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

func TestPercentEncoded(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"plain text, even ~", "plain text, even ~"},
		{"100%", "100%25"},
		{"\tü\n", "%09%C3%BC%0A"},
		{"a\xffb", "a%EF%BF%BDb"},
	} {
		if got := percentEncoded(tt.text); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestDecodeBinary(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		ok         bool
	}{
		{"", "", true},
		{"AQI=", "\x01\x02", true},
		{"AQI", "\x01\x02", true},
		{"AQIDBA", "\x01\x02\x03\x04", true},
		{"AQ,Ag", "", false},
		{"A", "", false},
		{"=", "", false},
	} {
		got, err := decodeBinary(tt.text)
		if err == nil != tt.ok || tt.ok && got != tt.want {
			t.Errorf("%q is %q, %v; want %q", tt.text, got, err, tt.want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{"x-a_1.b": true, "": false, "X": false, "a b": false, "a:b": false, "ü": false} {
		if got := validName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
