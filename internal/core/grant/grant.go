// Package grant raises the limits of one rule for one caller until a time, as an operator has said: a
// [Grant] with a factor or a number. A grant changes the numbers of limits, and keeps the log and the
// policy. A [Set] finds the grant of a request, and [Active] has the set that decides now.
//
// [Parse] reads grants from other instances, and checks them with [Grant.Valid].
package grant

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// Bounds of a grant.
const (
	// MaxTime is the longest time of a grant.
	MaxTime = 31 * 24 * time.Hour
	// MaxFactor is the largest factor.
	MaxFactor = 1000
	// MaxReason bounds the reason, in bytes.
	MaxReason = 500
	// MaxText bounds each other text, in bytes.
	MaxText = 1 << 10
	// idLen is the length of an id.
	idLen = 12
)

// A Grant raises the limits of one rule for one caller until a time. It is immutable.
type Grant struct {
	ID   string `json:"id"`
	Rule string `json:"rule" doc:"the name of the rule"`
	Caller
	Amount
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	By     string    `json:"by" doc:"who granted it"`
	At     time.Time `json:"at" doc:"when it was granted"`
}

// A Caller is the caller of a grant: exactly one field is set.
type Caller struct {
	Subject string `json:"subject,omitempty"`
	Address string `json:"address,omitempty" doc:"an address, or a network as requests have it"`
	Digest  string `json:"digest,omitempty" doc:"the digest of an API key without a customer"`
}

// An Amount is how much a grant allows: exactly one field is set. It never lowers a limit.
type Amount struct {
	// Factor multiplies each limit of the rule, which is rounded up. It has at most two decimals.
	Factor float64 `json:"factor,omitempty" doc:"multiplies the limits of the rule: above 1, at most 1000, two decimals"`
	// Limit is for the limits with one window, such as 500/minute or 500/10s. A number alone is for
	// requests in flight.
	Limit string `json:"limit,omitempty" doc:"replaces the limit of the same window, such as 500/minute; a number alone is of requests in flight"`
}

// String returns the amount as people read it: ×2, or 500/minute.
func (a Amount) String() string {
	if a.Factor > 0 {
		return "×" + strconv.FormatFloat(a.Factor, 'f', -1, 64)
	}
	return a.Limit
}

// Valid returns what is wrong with an amount, or nil.
func (a Amount) Valid() error {
	switch {
	case (a.Factor != 0) == (a.Limit != ""):
		return errors.New("give a factor or a limit, and not both")
	case a.Limit != "":
		_, _, err := parseLimit(a.Limit)
		return err
	case !(a.Factor > 1 && a.Factor <= MaxFactor) || math.Abs(a.Factor*100-float64(a.hundredths())) > 1e-6:
		return fmt.Errorf("factor: write a number above 1, at most %d, with at most two decimals", MaxFactor)
	}
	return nil
}

// hundredths returns the factor as a whole number, so that 10 × 1.1 is 11.
func (a Amount) hundredths() uint64 { return uint64(math.Round(a.Factor * 100)) }

var errLimit = errors.New("limit: write a number and a window, such as 500/minute or 500/10s, or a number alone for requests in flight")

// parseLimit reads the limit of an amount. A limit of requests in flight has no window.
func parseLimit(text string) (hits uint64, win time.Duration, err error) {
	number, unit, windowed := strings.Cut(text, "/")
	if hits, err = strconv.ParseUint(number, 10, 64); err != nil || hits == 0 || hits == window.Unlimited || hits > window.MaxHits || len(text) > 64 {
		return 0, 0, errLimit
	}
	if !windowed {
		return hits, 0, nil
	}
	if win = lengthOf(unit); win < window.MinWindow || win > window.MaxWindow {
		return 0, 0, errLimit
	}
	return hits, win, nil
}

// lengthOf returns the length of a window as rules files write it: minute, month, 10s, 1d. Zero: it is
// none.
func lengthOf(unit string) time.Duration {
	switch u, is := calendar.ParseUnit(unit); {
	case is:
		return u.Nominal()
	case strings.EqualFold(unit, "minute"):
		return time.Minute
	case strings.EqualFold(unit, "second"):
		return time.Second
	}
	if days, is := strings.CutSuffix(unit, "d"); is {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour
		}
	}
	length, err := time.ParseDuration(unit)
	if err != nil {
		return 0
	}
	return length
}

// Raise raises a limit, and reports whether the grant is about it and makes it larger. It keeps the
// window and the policy, so the log is the same.
func (a Amount) Raise(l *rules.Limit) bool {
	raised := l.Limit
	if a.Factor > 0 {
		most := uint64(window.MaxHits)
		if l.Policy == window.Sliding {
			most = window.MaxSliding
		}
		raised.Hits, raised.Rate = a.times(l.Hits, most), uint32(a.times(uint64(l.Rate), math.MaxUint32))
		if raised.Hits == window.Unlimited {
			raised.Hits++ // a number like any other
		}
	} else {
		hits, win, err := parseLimit(a.Limit)
		switch {
		case err != nil, (win == 0) != (l.Policy == window.InFlight), win > 0 && win != l.Window:
			return false
		case l.Policy == window.TokenBucket:
			raised.Rate = uint32(min(max(hits, uint64(l.Rate)), math.MaxUint32))
		}
		raised.Hits = max(hits, l.Hits)
	}
	if l.Policy == window.InFlight {
		raised.Hits = min(raised.Hits, window.MaxInFlight)
	}
	if l.Hits == window.Unlimited || raised.Hits <= l.Hits && raised.Rate <= l.Rate || raised.Valid() != nil {
		return false
	}
	if l.Precision == rules.PrecisionOf(l.Limit) {
		l.Precision = rules.PrecisionOf(raised)
	}
	l.Limit = raised
	return true
}

// times returns n times the factor, rounded up, and at most most.
func (a Amount) times(n, most uint64) uint64 {
	high, low := bits.Mul64(n, a.hundredths())
	low, carry := bits.Add64(low, 99, 0)
	if high += carry; high >= 100 {
		return most
	}
	quotient, _ := bits.Div64(high, low, 100)
	return min(quotient, most)
}

// String says how much is granted, until when, by whom and why.
func (g *Grant) String() string {
	return safetext.Text(fmt.Sprintf("%v until %s, by %s: %s (grant %s)", g.Amount, g.Until.UTC().Format(time.RFC3339), g.By, g.Reason, g.ID))
}

// Ended reports whether the grant has ended.
func (g *Grant) Ended(now time.Time) bool { return !now.Before(g.Until) }

// Valid returns what is wrong with the form of a grant, or nil.
func (g *Grant) Valid(now time.Time) error {
	if len(g.ID) != idLen || strings.Trim(g.ID, "0123456789abcdef") != "" {
		return errors.New("the id is not valid")
	}
	set := 0
	for _, text := range []string{g.Subject, g.Address, g.Digest} {
		if text != "" {
			set++
		}
	}
	switch {
	case set != 1:
		return errors.New("name exactly one of subject, address and digest")
	case g.Subject != "" && tier.ValidID(g.Subject) != nil:
		return errors.New("the subject is no valid id")
	case g.Address != "" && rules.CanonicalAddress(g.Address) != g.Address:
		return errors.New("the address is not in its canonical form")
	case g.Until.Sub(now) > MaxTime+time.Hour: // clocks differ
		return fmt.Errorf("until is more than %d days away", MaxTime/(24*time.Hour))
	}
	if g.Digest != "" {
		if _, err := tier.ReadDigest(g.Digest); err != nil {
			return errors.New("the digest is not valid")
		}
	}
	for _, text := range []string{g.Rule, g.Address, g.Reason, g.By} {
		if len(text) > MaxText || !utf8.ValidString(text) || strings.ContainsFunc(text, safetext.Unsafe) {
			return errors.New("a text is too long, or is not one line of printable text")
		}
	}
	if g.Rule == "" || len(g.Reason) > MaxReason {
		return errors.New("the rule is missing, or the reason is too long")
	}
	return g.Amount.Valid()
}

// Parse reads a grant as instances share it. Its errors contain no text of the grant.
func Parse(data []byte, now time.Time) (*Grant, error) {
	g := new(Grant)
	if json.Unmarshal(data, g) != nil {
		return nil, errors.New("it is no grant")
	}
	return g, g.Valid(now)
}

// NewID returns the id of a new grant.
func NewID() string {
	var id [idLen / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
