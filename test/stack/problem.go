package stack

import (
	"encoding/json"
	"strings"
	"testing"
)

// A Problem is the body of a denial.
type Problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule"`
	Limit      int      `json:"limit"`
	Window     float64  `json:"window"`
	RetryAfter int      `json:"retry_after"`
	Cost       uint64   `json:"cost"`
	Violated   []string `json:"violated-policies"`
}

// ProblemOf reads the body of a denial.
func ProblemOf(t *testing.T, a Answer) Problem {
	t.Helper()
	var p Problem
	d := json.NewDecoder(strings.NewReader(a.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Errorf("the body of a %d is no problem document: %v: %q", a.Status, err, a.Body)
	}
	return p
}
