package client

import (
	"testing"
	"time"
)

// TestUntil reads the forms of a time.
func TestUntil(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 10, 24, 17, 30, 0, 0, berlin) // the clock is set back in the night
	for text, want := range map[string]string{
		"18:00": "2026-10-24T18:00:00+02:00", "17:30": "2026-10-25T17:30:00+01:00", "09:05": "2026-10-25T09:05:00+01:00",
		"2h": "2026-10-24T19:30:00+02:00", "+2h": "2026-10-24T19:30:00+02:00", "1d": "2026-10-25T16:30:00+01:00",
		"2026-10-24T18:00:00Z": "2026-10-24T20:00:00+02:00", "": "", "tomorrow": "", "25:00": "", "18": "",
	} {
		until, err := Until(text, now)
		if want == "" {
			if err == nil {
				t.Errorf("%q: %v, %v", text, until, err)
			}
		} else if got := until.In(berlin).Format(time.RFC3339); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
	after := time.Date(2026, 3, 29, 4, 0, 0, 0, berlin) // this day has no 02:30
	if until, err := Until("02:30", after); err != nil || until.Format(time.RFC3339) != "2026-03-30T02:30:00+02:00" {
		t.Errorf("02:30 after the clock was set forward: %v, %v", until, err)
	}
}
