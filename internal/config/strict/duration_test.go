package strict

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{"0", 0},
		{"0s", 0},
		{"15ms", 15 * time.Millisecond},
		{"1h30m", 90 * time.Minute},
		{"7d", 7 * 24 * time.Hour},
		{"1w", 7 * 24 * time.Hour},
		{"1d12h", 36 * time.Hour},
		{"1.5d", 36 * time.Hour},
		{"2w1d", 15 * 24 * time.Hour},
		{"-1d", -24 * time.Hour},
		{"+10s", 10 * time.Second},
		{"1µs", time.Microsecond},
		{".5s", 500 * time.Millisecond},
	} {
		got, err := ParseDuration(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseDuration(%q): got %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}

func TestParseDurationRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "is not a time"},
		{"-", "is not a time"},
		{"60", `"60" has no unit: write 60s or 60ms`},
		{"1d12", `"1d12" has no unit`},
		{"1 d", "is not a time"},
		{"d", "is not a time"},
		{"1.2.3s", "is not a time"},
		{".s", "is not a time"},
		{"1D", "is not a time"},
		{"1y", "is not a time"},
		{"1s-1s", "is not a time"},
		{"16000w", "is too long"},
		{"99999999999999999999s", "is too long"},
		{"15000w15000w", "is too long"},
	} {
		got, err := ParseDuration(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseDuration(%q): got %v, %v, want an error with %q", c.text, got, err, c.want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "500ms": 500 * time.Millisecond, "1m": time.Minute, "1m0.5s": time.Minute + 500*time.Millisecond,
		"1h": time.Hour, "1h0m10s": time.Hour + 10*time.Second, "1h30m": 90 * time.Minute, "1d": Day, "14d": 2 * Week, "1d30m": Day + 30*time.Minute,
		"13d22h59m59s": 14*Day - time.Hour - time.Second, "-1d12h": -36 * time.Hour, "-106751d23h47m16.854775807s": -math.MaxInt64,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v): got %s, want %s", d, got, want)
		}
	}
}

// FuzzDuration holds ParseDuration against time.ParseDuration, of which it is a
// superset.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"0", "15ms", "1d12h", "-2w", "1.5d", "9223372036854775807ns", "60", "16000w", "..d", "+", "1d1d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseDuration(s)
		want, goErr := time.ParseDuration(s)
		// The shortest time of all has no positive counterpart.
		if goErr == nil && want != time.Duration(-1<<63) {
			if err != nil || got != want {
				t.Errorf("ParseDuration(%q): got %v, %v, want %v as time.ParseDuration", s, got, err, want)
			}
		}
		if goErr != nil && err == nil && !strings.ContainsAny(s, "dw") {
			t.Errorf("ParseDuration(%q): got %v, want an error as from time.ParseDuration", s, got)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("ParseDuration(%q): the error has several lines: %q", s, err)
		}
		if err == nil {
			for _, text := range []string{got.String(), FormatDuration(got)} {
				if again, err := ParseDuration(text); err != nil || again != got {
					t.Errorf("ParseDuration(%q): got %s, which reads as %v, %v", s, text, again, err)
				}
			}
		}
	})
}
