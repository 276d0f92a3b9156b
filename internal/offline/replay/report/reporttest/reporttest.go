// Package reporttest makes up reports of replays, in the states that each form must show.
package reporttest

import (
	"math"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// States are the names of the made-up reports.
var States = []string{"usual", "calm", "unlimited", "empty", "hostile"}

// New returns the made-up report of a state.
func New(state string) *replay.Report {
	switch state {
	case "empty":
		none := []uint64{}
		return &replay.Report{Rules: []replay.RuleReport{}, Totals: []replay.RuleTotal{}, Subjects: []replay.DeniedSubject{}, Times: replay.Series{Requests: none, Denied: none}}
	case "calm":
		return calm()
	case "unlimited":
		return unlimited()
	case "hostile":
		return hostile()
	default:
		return usual()
	}
}

var (
	from = time.Date(2026, 11, 1, 0, 0, 4, 0, time.UTC)
	to   = time.Date(2026, 11, 14, 23, 59, 58, 0, time.UTC)
)

// times has days with more requests at noon than at night, and denials in one night.
func times() replay.Series {
	s := replay.Series{From: from.Truncate(24 * time.Hour), Seconds: 6 * 3600}
	for i := range 56 {
		day := 1 - math.Cos(2*math.Pi*(float64(i)+0.5)/4)
		requests := uint64(60000 + 90000*day + 3000*float64(i*7%11))
		denied := requests / 4000
		if i > 33 && i < 39 {
			requests += 40000
			denied = uint64(900 * (5 - math.Abs(float64(i)-36)))
		}
		s.Requests, s.Denied = append(s.Requests, requests), append(s.Denied, denied)
	}
	return s
}

// rule invents a limit that denied a part of its requests, and what others would have done.
func rule(one replay.RuleReport, limit uint64, fraction float64) replay.RuleReport {
	one.WhatIf = &replay.WhatIf{Smallest: []replay.Smallest{{Fraction: 0.001, Limit: 140, Above: 139}, {Fraction: 0.01, Limit: 80, Above: 79}}}
	for _, percent := range []uint64{10, 20, 35, 50, 75, 100, 150, 200, 500, 1000} {
		denied := min(fraction*math.Pow(100/float64(percent), 2), 1)
		row := replay.WhatIfRow{
			Limit: limit * percent / 100, Denied: uint64(denied * float64(one.Requests)), DeniedFraction: denied,
			DeniedLogs: uint64(min(2*denied, 1) * float64(one.Logs)), LogsFraction: min(2*denied, 1), Current: percent == 100,
		}
		if one.WhatIf.Rows = append(one.WhatIf.Rows, row); row.Current {
			one.Denied, one.DeniedLogs = row.Denied, row.DeniedLogs
		}
	}
	return one
}

func rules() []replay.RuleReport {
	return []replay.RuleReport{
		rule(replay.RuleReport{Rule: "per-key", Location: "rules.yaml:6", Tier: "free", Limit: "100 per 1m", Requests: 4_812_334, Near: 61_204, Logs: 18_402}, 100, 0.0046),
		rule(replay.RuleReport{Rule: "per-key", Location: "rules.yaml:6", Tier: "pro", Limit: "500 per 1s", Requests: 3_204_771, Near: 112, Logs: 340}, 500, 0),
		rule(replay.RuleReport{Rule: "search", Location: "rules.yaml:18", Tier: "free", Limit: "200 per 1m, each request costs 10", Requests: 402_118, Near: 9_001, Logs: 6_011}, 200, 0.0082),
		{Rule: "per-address", Location: "rules.yaml:25", Limit: "20 per 10s", Observed: true, Requests: 8_017_105, Denied: 140_233, Near: 80_122, Logs: 92_004, DeniedLogs: 1_031},
		{Rule: "partners", Override: true, Location: "rules.yaml:31", Limit: "5 at once, each for at most 30s", Requests: 0},
	}
}

func subjects() []replay.DeniedSubject {
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 11, 0, time.UTC) }
	return []replay.DeniedSubject{
		{Subject: "acme", Rule: "per-key", Tier: "free", Denied: 14_201, First: at(9, 12, 2), Last: at(10, 22, 51), Seconds: 4_800},
		{Subject: "3f9c01d2a7be", Rule: "search", Tier: "free", Denied: 2_977, Error: 4, First: at(2, 9, 40), Last: at(14, 17, 3), Seconds: 1_912},
		{Subject: "initech", Rule: "per-key", Tier: "free", Denied: 812, First: at(3, 8, 0), Last: at(3, 8, 4), Seconds: 190},
		{Subject: "203.0.113.0/24", Rule: "per-key", Tier: "free", Denied: 77, First: at(6, 1, 17), Last: at(6, 1, 18), Seconds: 31},
	}
}

func usual() *replay.Report {
	all := subjects()
	return &replay.Report{
		Counts: replay.Counts{Requests: 8_120_441, Allowed: 8_095_030, Denied: 25_411, Unlimited: 103_336, NoQuestion: 80_002}, LogsFraction: 1, From: from, To: to, Times: times(), Rules: rules(), Totals: []replay.RuleTotal{{Rule: "per-key", Requests: 4_812_334, Denied: 22_101, Near: 61_204}}, Subjects: all,
		Logs: accesslog.Stats{Lines: 8_120_452, Broken: 11, Late: 31, Faults: []accesslog.Fault{
			{File: "access-2.log.gz", Line: 40_112, Reason: "the line is cut: it does not end with }"},
			{File: "access-2.log.gz", Line: 40_113, Reason: "no %START_TIME%: it begins within a record"},
		}},
		Unreported: []replay.Unreported{
			{
				Attribute: accesslog.Header("x-tenant"), Location: "envoy.yaml:120", Requests: 8_120_441,
				Effect: `Descriptors with tenant were left out, as if it were absent. To record it, add %REQ(x-tenant)% to the log format.`,
			},
			{Attribute: accesslog.Header("x-api-key"), Location: "envoy.yaml:131", Requests: 402_118, Effect: "All keys of a subject counted as one."},
			{Location: "envoy.yaml:150", Requests: 402_118, Effect: "disable_key: the descriptor counted as enabled in the runtime."},
		},
		Against: &replay.Comparison{
			Allowed: 8_110_003, Denied: 10_438, NewlyDenied: 15_204, Freed: 231,
			NewlyDeniedTop: all[:2], FreedTop: all[3:],
		},
	}
}

// calm is a replay in which no request was denied, and which was ended early.
func calm() *replay.Report {
	r := &replay.Report{
		Counts: replay.Counts{Requests: 1204, Allowed: 1204, UnknownSubjects: 12}, Evicted: 3, LogsFraction: 0.25, From: from, To: from.Add(40 * time.Second), Partial: true, Logs: accesslog.Stats{Lines: 1207, NoRequest: 3, AtEnd: 1204},
		Rules:  []replay.RuleReport{rules()[1]},
		Totals: []replay.RuleTotal{}, Subjects: []replay.DeniedSubject{},
		Against: &replay.Comparison{Allowed: 1204, NewlyDeniedTop: []replay.DeniedSubject{}, FreedTop: []replay.DeniedSubject{}},
	}
	r.Rules[0].Requests, r.Logs.WholeSeconds = 1204, true
	r.Rules[0].WhatIf.Smallest = []replay.Smallest{{Fraction: 0.001}, {Fraction: 0.01, Limit: 100}}
	r.Times = replay.Series{From: from, Seconds: 1}
	for i := range 41 {
		r.Times.Requests, r.Times.Denied = append(r.Times.Requests, uint64(20+i%20)), append(r.Times.Denied, 0)
	}
	return r
}

// unlimited is a replay of a log that has neither API keys nor subjects.
func unlimited() *replay.Report {
	r := calm()
	r.Partial, r.UnknownSubjects, r.Evicted, r.LogsFraction, r.Against = false, 0, 0, 1, nil
	r.Logs = accesslog.Stats{Lines: 1204}
	r.Unlimited = r.Requests
	r.Rules = []replay.RuleReport{{Rule: "per-key", Location: "rules.yaml:6", Tier: "free", Limit: "100 per 1m"}}
	r.Unreported = []replay.Unreported{{Attribute: accesslog.Subject, Location: "envoy.yaml:131", Requests: 1204, Effect: "The log has neither the key nor its subject: descriptors with api_key were left out."}}
	return r
}

// Hostile texts try to become markup, a command of a terminal, or very wide.
const Hostile = "</title><script>pwned=1</script>\x1b[31m\u202e\xff\"'`&" + `<img src=x onerror=alert(1)>` + "界"

func hostile() *replay.Report {
	long := strings.Repeat("n", 300)
	r := usual()
	r.Rules[0].WhatIf.Smallest = []replay.Smallest{{Fraction: 0.001, Limit: 150, Above: 100}, {Fraction: 0.01, Above: 1000}}
	for i := range r.Rules {
		r.Rules[i].Rule, r.Rules[i].Tier, r.Rules[i].Limit, r.Rules[i].Location = Hostile, long, Hostile+long, long+Hostile
	}
	for i := range r.Subjects {
		r.Subjects[i].Subject, r.Subjects[i].Rule, r.Subjects[i].Tier = Hostile+long, Hostile, long
	}
	for i := range r.Logs.Faults {
		r.Logs.Faults[i].File, r.Logs.Faults[i].Reason = long+Hostile, Hostile+long
	}
	for i := range r.Unreported {
		r.Unreported[i].Attribute, r.Unreported[i].Location, r.Unreported[i].Effect = accesslog.Attribute("REQ("+Hostile+")"), long+Hostile, Hostile+long
	}
	r.Requests, r.Rules[0].Requests = math.MaxUint64, math.MaxUint64
	r.Logs.Broken, r.Logs.NoAddress, r.Logs.TooEarly = r.Logs.Lines, math.MaxUint64, math.MaxUint64
	r.Rules[0].WhatIf.Rows[0] = replay.WhatIfRow{Limit: math.MaxUint64, Denied: math.MaxUint64, DeniedFraction: 1, LogsFraction: 1}
	r.Rules[1].WhatIf.Rows = r.Rules[1].WhatIf.Rows[:1]
	return r
}
