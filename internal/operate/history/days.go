package history

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is kept.
const (
	// Days is how many days are kept, with the one of now.
	Days        = 30
	maxRules    = 100
	maxSubjects = 200
	maxName     = 256
	// OtherRules is the name of all rules above the bound.
	OtherRules = "other rules"
)

// A Count is what one rule did in one hour.
type Count struct {
	Decisions uint64 `json:"decisions"`
	Denials   uint64 `json:"denials"`
}

// A name is that of a rule. The zero value stands for all rules above the bound.
type name struct{ domain, rule string }

func (n name) long() bool { return len(n.domain)+len(n.rule) > maxName }

// A day has the counts of one day in UTC.
type day struct {
	rules    map[name]*[24]Count
	subjects map[string]uint64 // by the names of insight.TopEntry.Who
}

// days has the counts by the date.
type days map[string]*day

// date returns the name of a day.
func date(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// of returns the day of an instant.
func (d days) of(at time.Time) *day {
	one := d[date(at)]
	if one == nil {
		one = newDay()
		d[date(at)] = one
	}
	return one
}

func newDay() *day { return &day{make(map[name]*[24]Count), make(map[string]uint64)} }

// forget removes the days that are no longer kept.
func (d days) forget(now time.Time) {
	for at := range d {
		if at <= date(now.AddDate(0, 0, -Days)) || at > date(now.AddDate(0, 0, 1)) {
			delete(d, at)
		}
	}
}

// add counts what a rule did in an hour.
func (d *day) add(n name, hour int, c Count) {
	if n.long() || d.rules[n] == nil && len(d.rules) >= maxRules {
		n = name{}
	}
	d.put(n, hour, c)
}

// put is add without a bound.
func (d *day) put(n name, hour int, c Count) {
	hours := d.rules[n]
	if hours == nil {
		hours = new([24]Count)
		d.rules[n] = hours
	}
	hours[hour].Decisions += c.Decisions
	hours[hour].Denials += c.Denials
}

// deny counts denials of a subject. Above the bound a subject takes the place of the one with the
// fewest denials, if it has more.
func (d *day) deny(who string, denials uint64) {
	if len(who) > maxName || denials == 0 {
		return
	}
	if _, known := d.subjects[who]; !known && len(d.subjects) >= maxSubjects {
		least, fewest := "", denials
		for other, n := range d.subjects {
			if n < fewest {
				least, fewest = other, n
			}
		}
		if least == "" {
			return
		}
		delete(d.subjects, least)
	}
	d.subjects[who] += denials
}

// The kinds of counts, which stand behind the hour in a field.
const (
	decided = "a"
	denied  = "d"
)

// field returns the name of a count: its hour, its kind, and a name as two words without spaces.
func field(hour int, kind string, n name) string {
	return fmt.Sprintf("%02d%s%s %s", hour, kind, url.QueryEscape(n.domain), url.QueryEscape(n.rule))
}

// eachField calls f with the fields of the rules, and with the field in its place above the bound.
func (d *day) eachField(f func(field, other string, count uint64)) {
	for n, hours := range d.rules {
		for hour, c := range hours {
			if c.Decisions > 0 {
				f(field(hour, decided, n), field(hour, decided, name{}), c.Decisions)
			}
			if c.Denials > 0 {
				f(field(hour, denied, n), field(hour, denied, name{}), c.Denials)
			}
		}
	}
}

// putField reads what field has named.
func (d *day) putField(text string, count uint64) error {
	words := strings.Split(text, " ")
	if len(words) != 2 || len(words[0]) < 3 {
		return errors.New("a count has no rule")
	}
	hour, err := strconv.ParseUint(words[0][:2], 10, 5)
	domain, errDomain := url.QueryUnescape(words[0][3:])
	rule, errRule := url.QueryUnescape(words[1])
	n := name{domain, rule}
	if err := errors.Join(err, errDomain, errRule); err != nil || hour > 23 || n.long() || !utf8.ValidString(domain+rule) {
		return errors.New("a count of a rule is malformed")
	}
	switch words[0][2:3] {
	case decided:
		d.put(n, int(hour), Count{Decisions: count})
	case denied:
		d.put(n, int(hour), Count{Denials: count})
	default:
		return errors.New("a count of a rule has an unknown kind")
	}
	return nil
}

// putSubject reads a subject.
func (d *day) putSubject(who string, denials uint64) error {
	if len(who) > maxName || !utf8.ValidString(who) {
		return errors.New("a subject is malformed")
	}
	d.subjects[who] = denials
	return nil
}
