package ruletest

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Failed counts the tests that did not pass.
func Failed(results []Result) (n int) {
	for i := range results {
		if !results[i].Passed() {
			n++
		}
	}
	return n
}

// lines describes what is wrong: the place first, so that editors find it.
func (r *Result) lines() []string {
	lines := slices.Clone(r.Problems)
	for i := range r.Failures {
		f := &r.Failures[i]
		for _, wrong := range f.Wrong {
			lines = append(lines, fmt.Sprintf("%s:%d: step %d: %s", r.File, f.Line, f.Step, wrong))
		}
		lines = append(lines, fmt.Sprintf("the last request of step %d, at %v, is %s", f.Step, f.At, f.Told))
	}
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return lines
}

// plain replaces what a terminal or an XML file must not get.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
}

// WriteText writes the failures, what no test reached, and a line with the counts.
func WriteText(w io.Writer, results []Result, parts []Part) error {
	var b strings.Builder
	requests := 0
	for i := range results {
		r := &results[i]
		requests += r.Requests
		if r.Passed() {
			continue
		}
		fmt.Fprintf(&b, "FAIL %s\n", plain(r.Name))
		for _, line := range r.lines() {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	reached := 0
	for i := range parts {
		if p := &parts[i]; p.Requests > 0 {
			reached++
		} else {
			fmt.Fprintf(&b, "not tested: %s\n", p)
		}
	}
	failed := Failed(results)
	fmt.Fprintf(&b, "%d passed, %d failed, %d requests; %d of %d rules and tiers tested\n", len(results)-failed, failed, requests, reached, len(parts))
	_, err := io.WriteString(w, b.String())
	return err
}

// String names a part with its place.
func (p *Part) String() string {
	if p.Tier == "" {
		return plain(fmt.Sprintf("%s: rule %s", p.Place, p.Rule))
	}
	return plain(fmt.Sprintf("%s: rule %s, tier %s", p.Place, p.Rule, p.Tier))
}

// WriteTAP writes the results in version 14 of the Test Anything Protocol.
func WriteTAP(w io.Writer, results []Result, parts []Part) error {
	var b strings.Builder
	fmt.Fprintf(&b, "TAP version 14\n1..%d\n", len(results))
	// A "#" begins a directive.
	escape := strings.NewReplacer(`\`, `\\`, "#", `\#`)
	for i := range results {
		r := &results[i]
		word := "ok"
		if !r.Passed() {
			word = "not ok"
		}
		fmt.Fprintf(&b, "%s %d - %s\n", word, i+1, escape.Replace(plain(r.Name)))
		for _, line := range r.lines() {
			fmt.Fprintf(&b, "# %s\n", line)
		}
	}
	for i := range parts {
		if p := &parts[i]; p.Requests == 0 {
			fmt.Fprintf(&b, "# not tested: %s\n", p)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"` // in seconds
	Cases    []junitCase `xml:"testcase"`
	took     time.Duration
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the results as JUnit's XML, with a suite for each file.
func WriteJUnit(w io.Writer, results []Result) error {
	all := junitSuites{Tests: len(results), Failures: Failed(results)}
	for i := range results {
		r := &results[i]
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != r.File {
			all.Suites = append(all.Suites, junitSuite{Name: r.File})
		}
		s := &all.Suites[len(all.Suites)-1]
		c := junitCase{Class: r.File, Name: plain(r.Name), File: r.File, Line: r.Line, Time: seconds(r.Took)}
		if lines := r.lines(); len(lines) > 0 {
			c.Failure = &junitFailure{Message: lines[0], Text: strings.Join(lines, "\n")}
			s.Failures++
		}
		s.Tests++
		s.took += r.Took
		s.Time = seconds(s.took)
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
