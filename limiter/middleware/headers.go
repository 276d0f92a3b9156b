package middleware

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/limiter"
)

// AppendHeaders appends the header fields to set for a decision to dst. values returns the values of a
// field that the response already has, for example from middleware around this one:
//
//   - RateLimit and RateLimit-Policy keep them, and get those of the decision behind them.
//   - The fields with one value, such as X-RateLimit-Limit, describe the stricter limit. That is the
//     one that denies, or the one with the smaller part remaining.
//   - Retry-After is the longer wait.
//
// A field with an empty value is one to remove.
func AppendHeaders(dst []limiter.Header, d *limiter.Decision, values func(name string) []string) []limiter.Header {
	begin := len(dst)
	dst = d.AppendHeaders(dst)
	var kept, gone string
	added := dst[begin:]
	for i := range added {
		f := &added[i]
		there := values(f.Name)
		if len(there) == 0 {
			continue
		}
		group, first := strings.CutSuffix(f.Name, "-limit")
		if first {
			theirs, ours := quotaOf(group, values), quotaOf(group, func(name string) []string { return valuesIn(added, name) })
			switch {
			case d.Allowed && theirs.stricter(ours):
				kept = group + "-"
			case theirs.reset >= 0 && ours.reset < 0:
				gone = group + "-reset"
			}
		}
		switch {
		case f.Name == "ratelimit" || f.Name == "ratelimit-policy":
			f.Value = strings.Join(there, ", ") + ", " + f.Value
		case f.Name == "retry-after" && number(there) > number([]string{f.Value}), kept != "" && strings.HasPrefix(f.Name, kept):
			f.Value = there[0]
		}
	}
	if gone != "" {
		dst = append(dst, limiter.Header{Name: gone})
	}
	return dst
}

// A quota is what the fields GROUP-limit, GROUP-remaining and GROUP-reset say. -1: nothing that can be
// read.
type quota struct{ limit, remaining, reset float64 }

func quotaOf(group string, values func(name string) []string) quota {
	return quota{number(values(group + "-limit")), number(values(group + "-remaining")), number(values(group + "-reset"))}
}

// stricter reports whether q has the smaller part remaining, or the same part and the later reset. A
// quota that cannot be read is not stricter.
func (q quota) stricter(than quota) bool {
	if q.limit < 0 || q.remaining < 0 {
		return false
	}
	c := cmp.Compare(q.remaining/max(1, q.limit), than.remaining/max(1, than.limit))
	return c < 0 || c == 0 && q.reset > than.reset
}

// number returns the first value up to its first comma, as in "100, 100;w=60". -1: it is no number.
func number(values []string) float64 {
	if len(values) == 0 {
		return -1
	}
	text, _, _ := strings.Cut(values[0], ",")
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return -1
	}
	return float64(n)
}

func valuesIn(fields []limiter.Header, name string) []string {
	for _, f := range fields {
		if f.Name == name {
			return []string{f.Value}
		}
	}
	return nil
}
