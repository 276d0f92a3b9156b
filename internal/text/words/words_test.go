package words

import (
	"math"
	"testing"
	"time"
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
		{Duration(-time.Second), "0s"},
		{Duration(900 * time.Nanosecond), "1µs"},
		{Duration(1510 * time.Microsecond), "1.6ms"},
		{Duration(319500 * time.Microsecond), "320ms"},
		{Duration(9410 * time.Millisecond), "9.5s"},
		{Duration(10001 * time.Millisecond), "11s"},
		{Duration(time.Minute), "1m"},
		{Duration(200 * time.Second), "3m20s"},
		{Duration(59*time.Minute + 59001*time.Millisecond), "1h"},
		{Duration(2*time.Hour + 5*time.Minute), "2h5m"},
		{Duration(51*time.Hour - time.Second), "2d3h"},
		{Seconds(0.25), "250ms"},
		{Seconds(math.Inf(1)), "–"},
		{Seconds(-1), "–"},
		{Percent(0), "0 %"},
		{Percent(1e-9), "<0.001 %"},
		{Percent(0.00001), "0.001 %"},
		{Percent(0.000123), "0.012 %"},
		{Percent(0.001), "0.1 %"},
		{Percent(0.0046), "0.46 %"},
		{Percent(0.01), "1 %"},
		{Percent(0.0999), "10 %"},
		{Percent(0.1234), "12.3 %"},
		{Percent(0.9996), ">99.9 %"},
		{Percent(1), "100 %"},
		{Percent(2.5), "250 %"},
		{PercentOf(1, 4), "25 %"},
		{PercentOf(0, 0), "0 %"},
		{Bytes(950), "950 B"},
		{Bytes(12345), "12.3 kB"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
