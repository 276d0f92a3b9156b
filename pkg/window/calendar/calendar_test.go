package calendar

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/pkg/window"
)

func ptr(n int) *int { return &n }

// calendarOf returns the calendar of a spec.
func calendarOf(tb testing.TB, s Spec) *Calendar {
	tb.Helper()
	c, err := New(s)
	if err != nil {
		tb.Fatalf("New(%+v): %v", s, err)
	}
	return c
}

// format is how tests write an instant: UTC, to the second.
const format = "2006-01-02 15:04:05"

func instantOf(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(format, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

func write(p window.Period) [3]string {
	text := func(s int64) string { return time.Unix(s, 0).UTC().Format(format) }
	return [3]string{text(p.Start), text(p.End), text(p.Next)}
}

func TestPeriod(t *testing.T) {
	tests := []struct {
		name string
		spec Spec
		at   string
		want [3]string // UTC
	}{
		{
			"an hour",
			Spec{Unit: "hour"},
			"2026-03-01 10:59:59",
			[3]string{"2026-03-01 10:00:00", "2026-03-01 11:00:00", "2026-03-01 12:00:00"},
		},
		{
			"an hour from minute 15",
			Spec{Unit: "hour", Starts: Starts{Minute: ptr(15)}},
			"2026-03-01 10:14:59",
			[3]string{"2026-03-01 09:15:00", "2026-03-01 10:15:00", "2026-03-01 11:15:00"},
		},
		{
			"an hour by a clock that is half an hour ahead",
			Spec{Unit: "hour", TimeZone: "Asia/Kolkata"},
			"2026-03-01 10:29:59",
			[3]string{"2026-03-01 09:30:00", "2026-03-01 10:30:00", "2026-03-01 11:30:00"},
		},
		{
			"both hours when the clock goes back by one",
			Spec{Unit: "hour", TimeZone: "Europe/Berlin"},
			"2026-10-25 00:30:00",
			[3]string{"2026-10-25 00:00:00", "2026-10-25 01:00:00", "2026-10-25 02:00:00"},
		},
		{
			// 02:00 (+11) becomes 01:30 (+10:30): the clock shows 01:00 once.
			"the hour in which the clock goes back by half an hour",
			Spec{Unit: "hour", TimeZone: "Australia/Lord_Howe"},
			"2026-04-04 15:10:00",
			[3]string{"2026-04-04 14:00:00", "2026-04-04 15:30:00", "2026-04-04 16:30:00"},
		},
		{
			// 02:00 (+10:30) becomes 02:30 (+11): the clock skips 02:00.
			"the hour that begins when the clock skips half an hour",
			Spec{Unit: "hour", TimeZone: "Australia/Lord_Howe"},
			"2026-10-03 15:30:00",
			[3]string{"2026-10-03 15:30:00", "2026-10-03 16:00:00", "2026-10-03 17:00:00"},
		},
		{
			"a day",
			Spec{Unit: "Day", TimeZone: "UTC"},
			"2026-02-28 00:00:00",
			[3]string{"2026-02-28 00:00:00", "2026-03-01 00:00:00", "2026-03-02 00:00:00"},
		},
		{
			"a day of 23 hours",
			Spec{Unit: "day", TimeZone: "Europe/Berlin"},
			"2026-03-29 12:00:00",
			[3]string{"2026-03-28 23:00:00", "2026-03-29 22:00:00", "2026-03-30 22:00:00"},
		},
		{
			"a day of 25 hours",
			Spec{Unit: "day", TimeZone: "Europe/Berlin"},
			"2026-10-25 22:59:59",
			[3]string{"2026-10-24 22:00:00", "2026-10-25 23:00:00", "2026-10-26 23:00:00"},
		},
		{
			"a day whose start the clock skips",
			Spec{Unit: "day", TimeZone: "Europe/Berlin", Starts: Starts{Hour: ptr(2), Minute: ptr(30)}},
			"2026-03-29 01:00:00",
			[3]string{"2026-03-29 01:00:00", "2026-03-30 00:30:00", "2026-03-31 00:30:00"},
		},
		{
			"a day whose start the clock shows twice",
			Spec{Unit: "day", TimeZone: "Europe/Berlin", Starts: Starts{Hour: ptr(2), Minute: ptr(30)}},
			"2026-10-25 01:30:00",
			[3]string{"2026-10-25 00:30:00", "2026-10-26 01:30:00", "2026-10-27 01:30:00"},
		},
		{
			"midnight comes twice",
			Spec{Unit: "day", TimeZone: "America/Havana"},
			"2026-11-01 05:30:00",
			[3]string{"2026-11-01 04:00:00", "2026-11-02 05:00:00", "2026-11-03 05:00:00"},
		},
		{
			"midnight is skipped",
			Spec{Unit: "day", TimeZone: "Africa/Cairo"},
			"2026-04-23 22:00:00",
			[3]string{"2026-04-23 22:00:00", "2026-04-24 21:00:00", "2026-04-25 21:00:00"},
		},
		{
			"the day that Samoa left out",
			Spec{Unit: "day", TimeZone: "Pacific/Apia"},
			"2011-12-30 09:59:59",
			[3]string{"2011-12-29 10:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"},
		},
		{
			"the days around the day that Samoa left out",
			Spec{Unit: "day", TimeZone: "Pacific/Apia"},
			"2011-12-29 09:59:59",
			[3]string{"2011-12-28 10:00:00", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
		},
		{
			// The clock stood at +08:30 from 2015-08-15 to 2018-05-04 23:30.
			"a day of 23 and a half hours",
			Spec{Unit: "day", TimeZone: "Asia/Pyongyang"},
			"2018-05-04 14:59:59",
			[3]string{"2018-05-03 15:30:00", "2018-05-04 15:00:00", "2018-05-05 15:00:00"},
		},
		{
			"the month of Ramadan in Morocco",
			Spec{Unit: "day", TimeZone: "Africa/Casablanca"},
			"2026-02-15 12:00:00",
			[3]string{"2026-02-14 23:00:00", "2026-02-16 00:00:00", "2026-02-17 00:00:00"},
		},
		{
			"a week", Spec{Unit: "week"}, "2026-03-01 12:00:00", // a Sunday
			[3]string{"2026-02-23 00:00:00", "2026-03-02 00:00:00", "2026-03-09 00:00:00"},
		},
		{
			"a week from Sunday at 18:00",
			Spec{Unit: "week", TimeZone: "America/New_York", Starts: Starts{Weekday: "sun", Hour: ptr(18)}},
			"2026-03-08 21:59:59",
			[3]string{"2026-03-01 23:00:00", "2026-03-08 22:00:00", "2026-03-15 22:00:00"},
		},
		{
			"a month",
			Spec{Unit: "month"},
			"2028-02-29 23:59:59",
			[3]string{"2028-02-01 00:00:00", "2028-03-01 00:00:00", "2028-04-01 00:00:00"},
		},
		{
			"a month from day 15 at 09:00",
			Spec{Unit: "month", TimeZone: "Europe/Berlin", Starts: Starts{Day: ptr(15), Hour: ptr(9)}},
			"2026-03-15 07:59:59",
			[3]string{"2026-02-15 08:00:00", "2026-03-15 08:00:00", "2026-04-15 07:00:00"},
		},
		{
			"a month from day 31",
			Spec{Unit: "month", Starts: Starts{Day: ptr(31)}},
			"2026-02-28 00:00:00",
			[3]string{"2026-02-28 00:00:00", "2026-03-31 00:00:00", "2026-04-30 00:00:00"},
		},
		{
			"a month from day 30 in a leap year",
			Spec{Unit: "month", Starts: Starts{Day: ptr(30)}},
			"2028-02-28 23:59:59",
			[3]string{"2028-01-30 00:00:00", "2028-02-29 00:00:00", "2028-03-30 00:00:00"},
		},
		{
			"a quarter",
			Spec{Unit: "quarter"},
			"2026-12-31 23:59:59",
			[3]string{"2026-10-01 00:00:00", "2027-01-01 00:00:00", "2027-04-01 00:00:00"},
		},
		{
			"a quarter from the last day of November",
			Spec{Unit: "quarter", Starts: Starts{Month: "nov", Day: ptr(31)}},
			"2026-02-28 00:00:00",
			[3]string{"2026-02-28 00:00:00", "2026-05-31 00:00:00", "2026-08-31 00:00:00"},
		},
		{
			"a year",
			Spec{Unit: "year", TimeZone: "Asia/Tokyo"},
			"2025-12-31 14:59:59",
			[3]string{"2024-12-31 15:00:00", "2025-12-31 15:00:00", "2026-12-31 15:00:00"},
		},
		{
			"a year from 29 February",
			Spec{Unit: "year", Starts: Starts{Month: "2", Day: ptr(29)}},
			"2028-02-28 23:59:59",
			[3]string{"2027-02-28 00:00:00", "2028-02-29 00:00:00", "2029-02-28 00:00:00"},
		},
		{
			"the first second",
			Spec{Unit: "year", TimeZone: "Europe/Berlin"},
			"1970-01-01 00:00:00",
			[3]string{"1970-01-01 00:00:00", "1970-12-31 23:00:00", "1971-12-31 23:00:00"},
		},
		{
			"before the first second",
			Spec{Unit: "hour"},
			"1950-01-01 00:00:00",
			[3]string{"1970-01-01 00:00:00", "1970-01-01 01:00:00", "1970-01-01 02:00:00"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := calendarOf(t, tt.spec)
			got := write(c.Period(instantOf(t, tt.at)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v at %s (-want +got):\n%s", c, tt.at, diff)
			}
		})
	}
}

func TestPeriodIsKept(t *testing.T) {
	c := calendarOf(t, Spec{Unit: "month", TimeZone: "Europe/Berlin"})
	at := instantOf(t, "2026-03-15 07:59:59")
	want := c.Period(at)
	if got := testing.AllocsPerRun(100, func() { c.Period(at) }); got != 0 {
		t.Errorf("Period allocates %v times", got)
	}
	// A clock that jumps gets the period of where it is.
	for _, days := range []int{40, -40, 0} {
		at := at.AddDate(0, 0, days)
		p := c.Period(at)
		if now := at.Unix(); now < p.Start || now >= p.End {
			t.Errorf("Period(%v) = %v, which it is not in", at, write(p))
		}
	}
	if got := c.Period(at); got != want {
		t.Errorf("Period(%v) = %v, then %v", at, write(want), write(got))
	}
}

func TestStarting(t *testing.T) {
	month := calendarOf(t, Spec{Unit: "month", TimeZone: "Europe/Berlin", Starts: Starts{Day: ptr(2), Hour: ptr(9)}})
	week := calendarOf(t, Spec{Unit: "week"})
	tests := []struct {
		c    *Calendar
		day  string
		want string // a part of the error if it begins with "!"
	}{
		{month, "15", "month from day 15 at 09:00, Europe/Berlin"},
		{month, "07", "month from day 7 at 09:00, Europe/Berlin"},
		{month, "31", "month from day 31 at 09:00, Europe/Berlin"},
		{month, "2", "month from day 2 at 09:00, Europe/Berlin"},
		{month, "", "!the text is not a day of the month: write 1 to 31"},
		{month, "0", "!not a day of the month"},
		{month, "32", "!not a day of the month"},
		{month, "-1", "!not a day of the month"},
		{month, "1.5", "!not a day of the month"},
		{month, "٣", "!not a day of the month"},
		{month, strings.Repeat("9", 1000), "!not a day of the month"},
		{week, "Friday", "week from Friday 00:00, UTC"},
		{week, "sun", "week from Sunday 00:00, UTC"},
		{week, "5", "!not a day of the week: write monday to sunday"},
		{calendarOf(t, Spec{Unit: "day"}), "5", "!hours and days do not start on a day of their own"},
	}
	for _, tt := range tests {
		got, err := tt.c.Starting(tt.day)
		if part, bad := strings.CutPrefix(tt.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), part) || got != nil {
				t.Errorf("Starting(%.40q) = %v, %v, want the error %s", tt.day, got, err, part)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("Starting(%q) = %v, %v, want %s", tt.day, got, err, tt.want)
			continue
		}
		if again, _ := tt.c.Starting(tt.day); again != got {
			t.Errorf("Starting(%q) makes a calendar each time", tt.day)
		}
		if allocs := testing.AllocsPerRun(100, func() { _, _ = tt.c.Starting(tt.day) }); allocs != 0 {
			t.Errorf("Starting(%q) allocates %v times", tt.day, allocs)
		}
	}
	if same, _ := month.Starting("2"); same != month {
		t.Error("the day of the calendar itself makes another one")
	}
}

func TestNewRefuses(t *testing.T) {
	const units = "hour, day, week, month, quarter or year"
	tests := []struct {
		name string
		spec Spec
		want []string
	}{
		{"nothing", Spec{}, []string{"unit: is missing; write " + units}},
		{"a unit that is not of a calendar", Spec{Unit: "minute"}, []string{`unit: "minute" is not a unit of a calendar; write ` + units}},
		{"an unknown zone", Spec{Unit: "day", TimeZone: "Europe/Berln"}, []string{
			`time_zone: unknown time zone "Europe/Berln"; write a name of the IANA database, such as Europe/Berlin, America/New_York or UTC`,
		}},
		{"an offset", Spec{Unit: "day", TimeZone: "+02:00"}, []string{
			`time_zone: unknown time zone "+02:00"; write a name of the IANA database, such as Europe/Berlin, America/New_York or UTC`,
		}},
		{"a path", Spec{Unit: "day", TimeZone: "../../etc/passwd"}, []string{
			`time_zone: unknown time zone "../../etc/passwd"; write a name of the IANA database, such as Europe/Berlin, America/New_York or UTC`,
		}},
		{"the zone of the machine", Spec{Unit: "day", TimeZone: "Local"}, []string{
			"time_zone: Local is another zone on each machine; write a name of the IANA database, such as Europe/Berlin",
		}},
		{"a weekday of a month", Spec{Unit: "month", Starts: Starts{Weekday: "monday"}}, []string{
			"starts.weekday: only a week has it, and the unit is month; remove it",
		}},
		{"a day of a week", Spec{Unit: "week", Starts: Starts{Day: ptr(1), Month: "may"}}, []string{
			"starts.month: only a quarter or a year has it, and the unit is week; remove it",
			"starts.day: only a month, a quarter or a year has it, and the unit is week; remove it",
		}},
		{"an hour of an hour", Spec{Unit: "hour", Starts: Starts{Hour: ptr(0)}}, []string{
			"starts.hour: only a day or a longer unit has it, and the unit is hour; remove it",
		}},
		{"numbers", Spec{Unit: "year", TimeZone: "UTC", Starts: Starts{Month: "13", Day: ptr(32), Hour: ptr(24), Minute: ptr(-1)}}, []string{
			`starts.month: "13" is not a month; write 1 to 12 or january to december`,
			"starts.day: 32 is not between 1 and 31",
			"starts.hour: 24 is not between 0 and 23",
			"starts.minute: -1 is not between 0 and 59",
		}},
		{"names", Spec{Unit: "week", Starts: Starts{Weekday: "mo"}}, []string{
			`starts.weekday: "mo" is not a day of the week; write monday to sunday`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := New(tt.spec)
			if err == nil {
				t.Fatalf("New = %v, want an error", c)
			}
			var got []string
			for _, mistake := range FieldErrors(err) {
				got = append(got, mistake.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("New (-want +got):\n%s", diff)
			}
		})
	}
	if FieldErrors(errors.New("another")) != nil {
		t.Error("FieldErrors finds mistakes of a spec in another error")
	}
}

func TestUnits(t *testing.T) {
	for u := Hour; u <= Year; u++ {
		if got, ok := ParseUnit(strings.ToUpper(u.String())); got != u || !ok {
			t.Errorf("ParseUnit(%v) = %v, %v", u, got, ok)
		}
		// The nominal length is that of a period of the common year 2026.
		if l := (window.Limit{Hits: 1, Window: u.Nominal(), Policy: window.Calendar}); l.Valid() != nil {
			t.Errorf("%v: %v", u, l.Valid())
		}
	}
	if Unit(0).Nominal() != 0 || Unit(7).String() != "Unit(7)" {
		t.Error("what is not a unit has a length or a name")
	}
}

// TestShortened: a calendar knows whether some month does not have its day.
func TestShortened(t *testing.T) {
	for _, unit := range []string{"month", "quarter", "year"} {
		for day, want := range map[int]bool{28: false, 29: true, 31: true} {
			got, err := New(Spec{Unit: unit, Starts: Starts{Day: &day}})
			if err != nil || got.Shortened() != want {
				t.Errorf("%s, day %d: got %v, %v", unit, day, got.Shortened(), err)
			}
		}
	}
	if day, err := New(Spec{Unit: "day"}); err != nil || day.Shortened() {
		t.Errorf("a day: %v, %v", day, err)
	}
}
