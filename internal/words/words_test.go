package words

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1234567), "1,234,567"},
		{Counted(1, "request"), "1 request"},
		{Counted(9500, "request"), "9,500 requests"},
		{Coordinate(1.006), "1.01"},
		{Short(0), "0"},
		{Short(0.001), "<0.01"},
		{Short(9.5), "9.5"},
		{Short(999.4), "999"},
		{Short(999.6), "1k"},
		{Short(12345), "12.3k"},
		{Short(99960), "100k"},
		{Short(-4.5e6), "-4.5M"},
		{Short(math.MaxUint64), "18.4E"},
		{Short(1e30), ">999E"},
		{Short(math.NaN()), "–"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
