package report

import (
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/words"
)

// percentage returns what percentage a part is of a whole.
func percentage(part, of uint64) string { return words.Percent(ratio(part, of)) }

func ratio(part, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// period says from when to when the requests of a report are.
func period(r *replay.Report) string {
	if r.Requests == 0 {
		return ""
	}
	from, to := r.From.UTC(), r.To.UTC()
	last := to.Format("2006-01-02 15:04:05")
	if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
		last = to.Format(time.TimeOnly)
	}
	return fmt.Sprintf("%s to %s UTC, %s", from.Format("2006-01-02 15:04:05"), last, words.Duration(to.Sub(from).Truncate(time.Second)))
}

// ofRule returns the name of a rule with its tier.
func ofRule(rule, tier string) string {
	if tier == "" {
		return rule
	}
	return rule + ", tier " + tier
}

// smallest says which limit denies less than a fraction of the requests.
func smallest(s replay.Smallest) string {
	of, limit := "the smallest limit", words.Count(s.Limit)
	switch {
	case s.Limit == s.Above+1 && s.Above > 0:
	case s.Above > 0 && s.Limit > 0:
		limit = fmt.Sprintf("above %s, at most %s", words.Count(s.Above), limit)
	case s.Above > 0:
		limit = "above " + words.Count(s.Above)
	case s.Limit > 0:
		of = "the smallest of the limits tried"
	default:
		of, limit = "the smallest of the limits tried", "none"
	}
	return fmt.Sprintf("%s that denies less than %s: %s", of, words.Percent(s.Fraction), limit)
}

// informative reports whether a limit of a table says what those before it do not: of the limits that
// deny nothing, the smallest and the one of now.
func informative(rows []replay.WhatIfRow, i int) bool {
	return i == 0 || rows[i].Current || rows[i].Denied > 0 || rows[i-1].Denied > 0
}

// title says the most important thing.
func title(r *replay.Report) string {
	switch {
	case r.Requests == 0:
		return "No request was decided"
	case r.Unlimited == r.Requests:
		return "No limit that denies applied to any request"
	case r.Denied == 0:
		return "These limits would have denied no request"
	default:
		return "These limits would have denied " + percentage(r.Denied, r.Requests) + " of the requests"
	}
}

// misleads is the fraction of the lines or requests from which on a fault makes a report misleading.
const misleads = 0.01

// misleading says why a report may be wrong as a whole, in a sentence for each reason.
func misleading(r *replay.Report) (all []string) {
	l := &r.Logs
	for _, reason := range []struct {
		part, of uint64
		text     string
	}{
		{l.Broken, l.Lines, "%s of the lines could not be read, so their requests are missing."},
		{l.NoAddress, r.Requests, "%s of the requests have a client that is no IP address. If the log has another text before the client, each of them counts as another caller. Give the format of the log with --format."},
		{l.TooEarly, r.Requests, "%s of the requests began long before the log, by their durations. If the unit of the durations is another one, give the format of the log with --format."},
	} {
		if ratio(reason.part, reason.of) >= misleads {
			all = append(all, fmt.Sprintf(reason.text, percentage(reason.part, reason.of)))
		}
	}
	return all
}

// notes say what the report cannot know, or may have wrong.
func notes(r *replay.Report) (all []string) {
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(r.Partial, "The replay was ended early. The report has the requests until then.")
	l := &r.Logs
	add(l.NoRequest > 0, "%s without a method and a path counted as no request.", words.Counted(l.NoRequest, "line"))
	add(l.AtEnd > 0, "The log does not say how long %s lasted, so the time of the end counted.", words.Counted(l.AtEnd, "request"))
	add(r.UnknownSubjects > 0, "The tiers lack the subject of %s: the limits of unknown callers counted.", words.Counted(r.UnknownSubjects, "request"))
	add(r.Evicted > 0, "The replay dropped %s to keep the bounds of its memory. More requests may have been allowed because of that. If there is more memory, raise store.memory.max_bytes.", words.Counted(r.Evicted, "log"))
	unmet := r.Requests > 0 && r.Unlimited == r.Requests
	add(unmet && len(r.Unreported) > 0, "What the logs do not say, below, can be the reason.")
	add(unmet && len(r.Unreported) == 0 && r.NoQuestion == r.Requests, "Envoy asks nothing about any of the requests. Check that --envoy names the configuration of the Envoy that wrote the logs, or the conditions of --map.")
	add(unmet && len(r.Unreported) == 0 && r.NoQuestion < r.Requests, "The rules match none of the descriptors, or only observe. rls explain shows what matches a descriptor.")
	add(l.WholeSeconds, "A log has times in whole seconds. Limits with a window of a few seconds may deny more or less live.")
	add(r.LogsFraction > 0 && r.LogsFraction < 1, "There were too many callers to remember each. The numbers of callers and the tables of other limits are estimates from %s of them.", words.Percent(r.LogsFraction))
	return all
}

// late says how many requests came too late in the logs, if any.
func late(r *replay.Report) string {
	if r.Logs.Late == 0 {
		return ""
	}
	return words.Counted(r.Logs.Late, "request") + " started before one that was already decided, and got the time of that one."
}
