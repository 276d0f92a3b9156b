package ruletest

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// Failed counts the tests that did not pass.
func (r *Report) Failed() (n int) {
	for i := range r.Results {
		if !r.Results[i].Passed() {
			n++
		}
	}
	return n
}

// lines describes what is wrong: the location first, so that editors find it.
func (r *Result) lines() []string {
	lines := slices.Clone(r.Problems)
	for i := range r.Failures {
		f := &r.Failures[i]
		for _, wrong := range f.Wrong {
			lines = append(lines, fmt.Sprintf("%s:%d: step %d: %s", r.File, f.Line, f.Step, wrong))
		}
		lines = append(lines, fmt.Sprintf("the last request of step %d, at %s, is %s", f.Step, strict.FormatDuration(f.At), f.Got))
	}
	return plainAll(lines)
}

// answers describes what the last request of each step got, if the runner kept that.
func (r *Result) answers() []string { return plainAll(slices.Clone(r.Answers)) }

func plainAll(lines []string) []string {
	for i := range lines {
		lines[i] = safetext.Text(lines[i])
	}
	return lines
}

// WriteText writes the failures, what no test reached, and a line with the counts. Of tests that
// were run with answers, it writes these.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	requests := 0
	for i := range r.Results {
		result := &r.Results[i]
		requests += result.Requests
		switch {
		case !result.Passed():
			fmt.Fprintf(&b, "FAIL %s\n", safetext.Text(result.Name))
		case result.Answers != nil:
			fmt.Fprintf(&b, "PASS %s\n", safetext.Text(result.Name))
		}
		for _, line := range slices.Concat(result.answers(), result.lines()) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	for _, line := range r.Untested() {
		fmt.Fprintf(&b, "not tested: %s\n", line)
	}
	counts := r.counts()
	if r.Chosen {
		counts = fmt.Sprintf("%d not run", r.NotRun)
	}
	failed := r.Failed()
	fmt.Fprintf(&b, "%d passed, %d failed, %d requests; %s\n", len(r.Results)-failed, failed, requests, counts)
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
	Answers string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the results as JUnit's XML, with a suite for each file.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{Tests: len(r.Results), Failures: r.Failed()}
	for i := range r.Results {
		result := &r.Results[i]
		file := safetext.Text(result.File)
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != file {
			all.Suites = append(all.Suites, junitSuite{Name: file})
		}
		s := &all.Suites[len(all.Suites)-1]
		c := junitCase{Class: file, Name: safetext.Text(result.Name), File: file, Line: result.Line, Time: seconds(result.Took), Answers: strings.Join(result.answers(), "\n")}
		if lines := result.lines(); len(lines) > 0 {
			c.Failure = &junitFailure{Message: lines[0], Text: strings.Join(lines, "\n")}
			s.Failures++
		}
		s.Tests++
		s.took += result.Took
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
