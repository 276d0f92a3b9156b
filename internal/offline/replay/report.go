package replay

import (
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// A Report is what the rules would have done with the requests of logs. Its JSON form is an
// interface: docs/replay.schema.json describes it.
type Report struct {
	// Misleading has a sentence for each reason why the report may be wrong as a whole. Package report
	// writes them, so the engine leaves it empty.
	Misleading []string `json:"misleading,omitempty"`
	Counts
	// Evicted counts the logs that the memory store dropped to keep its bounds, although hits in
	// them still counted. More requests may have been allowed because of that.
	Evicted uint64 `json:"evicted,omitempty"`
	// LogsFraction is the fraction of the logs that figures about logs are taken from, because there were
	// too many of them to remember each.
	LogsFraction float64   `json:"logs_share"`
	From         time.Time `json:"from"`
	To           time.Time `json:"to"`
	// Partial is true if the replay was ended before the end of the logs.
	Partial    bool            `json:"partial"`
	Times      Series          `json:"times"`
	Logs       accesslog.Stats `json:"logs"`
	Unreported []Unreported    `json:"untold,omitempty"`
	Rules      []RuleReport    `json:"rules"`
	Totals     []RuleTotal     `json:"rule_totals"`
	Subjects   []DeniedSubject `json:"subjects"` // who was denied most, at most 20
	Against    *Comparison     `json:"against,omitempty"`
}

// Counts are numbers of requests.
type Counts struct {
	Requests uint64 `json:"requests"`
	Allowed  uint64 `json:"allowed"`
	Denied   uint64 `json:"denied"`
	// Near counts admitted requests after which at most a tenth of a limit remained that is enforced.
	Near uint64 `json:"near"`
	// Unlimited counts allowed requests that no rule limited.
	Unlimited uint64 `json:"unlimited"`
	// NoQuestion counts allowed requests about which Envoy asks nothing. They count as unlimited
	// too.
	NoQuestion uint64 `json:"no_question"`
	// UnknownSubjects counts requests whose log names a subject that the tiers do not have.
	UnknownSubjects uint64 `json:"unknown_subjects,omitempty"`
}

// A RuleReport is what one limit of a rule did, for one tier.
type RuleReport struct {
	Rule     string `json:"rule"`
	Location string `json:"place"`          // file:line
	Tier     string `json:"tier,omitempty"` // empty if the rule has no subject
	Limit    string `json:"limit"`          // in plain words
	Observed bool   `json:"observed,omitempty"`
	// Override is true for limits of subjects, or of requests, in place of those of the rule.
	Override bool   `json:"own,omitempty"`
	Requests uint64 `json:"requests"`
	Denied   uint64 `json:"denied"`
	// Near counts admitted requests after which at most a tenth of the limit remained.
	Near uint64 `json:"near"`
	// Logs counts the logs, which are the callers as this rule distinguishes them, and DeniedLogs
	// those that were denied at least once. They are estimates if Report.LogsFraction is below 1.
	Logs       uint64  `json:"logs"`
	DeniedLogs uint64  `json:"denied_logs"`
	WhatIf     *WhatIf `json:"what_if,omitempty"`
}

// A RuleTotal is what all limits of the rules of one name did together, in all tiers. It counts each
// request and each caller once. Logs and DeniedLogs are estimates if Report.LogsFraction is below 1.
type RuleTotal struct {
	Rule       string `json:"rule"`
	Observed   bool   `json:"observed,omitempty"`
	Requests   uint64 `json:"requests"`
	Denied     uint64 `json:"denied"`
	Near       uint64 `json:"near"`
	Logs       uint64 `json:"logs"` // the callers, as this rule distinguishes them
	DeniedLogs uint64 `json:"denied_logs"`
}

// A WhatIf says what other limits in place of one would have done with the requests that it applied to,
// all other rules left out. Limits of requests in flight are not varied, nor overrides, nor rules with charge_once. For a token
// bucket the limit is its rate; the burst stays. If Report.LogsFraction is below 1, the rows are estimates.
type WhatIf struct {
	Requests uint64      `json:"requests"` // that the limit applied to
	Rows     []WhatIfRow `json:"rows"`     // by rising limit
	// For each fraction: the smallest limit that denies less.
	Smallest []Smallest `json:"smallest"`
}

// A WhatIfRow is one limit.
type WhatIfRow struct {
	Limit          uint64  `json:"limit"`
	Denied         uint64  `json:"denied"`
	DeniedFraction float64 `json:"denied_share"`
	DeniedLogs     uint64  `json:"denied_logs"`
	LogsFraction   float64 `json:"denied_logs_share"`
	Current        bool    `json:"current,omitempty"`
}

// A Smallest is the smallest limit that denies less than a fraction of the requests.
type Smallest struct {
	Fraction float64 `json:"share"` // 0.001 or 0.01
	Limit    uint64  `json:"limit"` // the smallest of those tried; 0: none of them does
	// Above is a limit that denies the fraction or more, so the smallest limit of all is above it, and
	// at most Limit. It is 0 if none is known for certain: the requests have several costs, or
	// Report.LogsFraction is below 1.
	Above uint64 `json:"above,omitempty"`
}

// A DeniedSubject is a caller that was denied.
type DeniedSubject struct {
	// Subject is the id of the subject, or the first bytes of a digest, or a masked address.
	Subject string `json:"subject"`
	Rule    string `json:"rule"`
	Tier    string `json:"tier,omitempty"`
	Denied  uint64 `json:"denied"`
	// Error bounds by how much Denied may be too high.
	Error uint64    `json:"error"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Seconds counts the seconds in which the caller was denied at least once. If a masked address
	// stands for several callers, it is that of the one with the most.
	Seconds uint64 `json:"seconds"`
}

// A Comparison is the replay of the same requests with other rules, those of now.
type Comparison struct {
	Allowed        uint64          `json:"allowed"`
	Denied         uint64          `json:"denied"`
	NewlyDenied    uint64          `json:"newly_denied"` // allowed now, denied by the rules of the report
	Freed          uint64          `json:"freed"`        // the reverse
	NewlyDeniedTop []DeniedSubject `json:"newly_denied_subjects"`
	FreedTop       []DeniedSubject `json:"freed_subjects"`
}
