package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/config/files"
)

// Bounds of what is kept.
const (
	// Days is how many days are kept, with the one of now.
	Days        = 30
	maxRules    = 100
	maxSubjects = 200
	maxName     = 256
	// maxFile bounds the file, in bytes. 30 days within the other bounds have less.
	maxFile = 16 << 20
	// OtherRules is the name of all rules above the bound.
	OtherRules = "other rules"
)

// A Count is what one rule did in one hour.
type Count struct {
	Decisions uint64 `json:"decisions"`
	Denials   uint64 `json:"denials"`
}

// A day has the counts of one day in UTC: of rules by the names that nameOf makes, and of subjects by those that
// [insight.TopEntry.Identify] takes.
type day struct {
	Rules    map[string]*[24]Count `json:"rules"`
	Subjects map[string]uint64     `json:"subjects"`
}

// others is the name of all rules above the bound.
const others = " "

// nameOf returns the name of a rule: two words without spaces.
func nameOf(domain, rule string) string {
	if len(domain)+len(rule) > maxName {
		return others
	}
	return url.QueryEscape(domain) + " " + url.QueryEscape(rule)
}

// ruleOf reads what nameOf has made.
func ruleOf(name string) (domain, rule string, err error) {
	domain, rule, _ = strings.Cut(name, " ")
	domain, err = url.QueryUnescape(domain)
	rule, err2 := url.QueryUnescape(rule)
	if err != nil || err2 != nil || strings.Count(name, " ") != 1 || len(domain)+len(rule) > maxName || !utf8.ValidString(domain+rule) {
		return "", "", errors.New("the name of a rule is malformed")
	}
	return domain, rule, nil
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

func newDay() *day { return &day{make(map[string]*[24]Count), make(map[string]uint64)} }

// forget removes the days that are no longer kept.
func (d days) forget(now time.Time) {
	for at := range d {
		if at <= date(now.AddDate(0, 0, -Days)) || at > date(now.AddDate(0, 0, 1)) {
			delete(d, at)
		}
	}
}

// add counts what a rule did in an hour.
func (d *day) add(name string, hour int, c Count) {
	if d.Rules[name] == nil && len(d.Rules) >= maxRules {
		name = others
	}
	d.put(name, hour, c)
}

// put is add without a bound.
func (d *day) put(name string, hour int, c Count) {
	hours := d.Rules[name]
	if hours == nil {
		hours = new([24]Count)
		d.Rules[name] = hours
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
	if _, known := d.Subjects[who]; !known && len(d.Subjects) >= maxSubjects {
		least, fewest := "", denials
		for other, n := range d.Subjects {
			if n < fewest {
				least, fewest = other, n
			}
		}
		if least == "" {
			return
		}
		delete(d.Subjects, least)
	}
	d.Subjects[who] += denials
}

// eachField calls f with the fields of the rules in Redis, and with the field in its place above the bound. A
// field is the hour, a for decisions or d for denials, and the name of the rule.
func (d *day) eachField(f func(field, other string, count uint64)) {
	for name, hours := range d.Rules {
		for hour, c := range hours {
			for kind, n := range map[string]uint64{"a": c.Decisions, "d": c.Denials} {
				if n > 0 {
					at := fmt.Sprintf("%02d%s", hour, kind)
					f(at+name, at+others, n)
				}
			}
		}
	}
}

// putField reads a field of Redis.
func (d *day) putField(text string, count uint64) error {
	if len(text) < 3 {
		return errors.New("a count has no rule")
	}
	hour, err := strconv.ParseUint(text[:2], 10, 5)
	_, _, errName := ruleOf(text[3:])
	if err := errors.Join(err, errName); err != nil || hour > 23 {
		return errors.New("a count of a rule is malformed")
	}
	switch text[2] {
	case 'a':
		d.put(text[3:], int(hour), Count{Decisions: count})
	case 'd':
		d.put(text[3:], int(hour), Count{Denials: count})
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
	d.Subjects[who] = denials
	return nil
}

// load returns the days of a file. They are empty if there is no file.
func load(file string) (days, error) {
	text, err := files.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return make(days), nil
	}
	if err != nil {
		return nil, err
	}
	all := make(days)
	if json.Unmarshal(text, &all) != nil || all == nil {
		return nil, errors.New("it is not a history that rls has written")
	}
	for at, d := range all {
		if _, err := time.Parse(time.DateOnly, at); err != nil || d == nil || d.Rules == nil || d.Subjects == nil || len(d.Rules) > maxRules+1 || len(d.Subjects) > maxSubjects {
			return nil, errors.New("a day is malformed")
		}
		for name, hours := range d.Rules {
			if _, _, err := ruleOf(name); err != nil || hours == nil {
				return nil, fmt.Errorf("a rule of the day %s is malformed", at)
			}
		}
		for who, denials := range d.Subjects {
			if err := d.putSubject(who, denials); err != nil {
				return nil, fmt.Errorf("the day %s: %w", at, err)
			}
		}
	}
	return all, nil
}

func save(file string, all days) error {
	return files.Replace(file, func(w io.Writer) error { return json.NewEncoder(w).Encode(all) })
}
