package policytest

import (
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/windowtest"
)

// A table is a history of one or a few logs.
type table struct {
	name  string
	steps []step
}

// A step is one call at one time and everything that it must answer.
type step struct {
	at     time.Duration
	checks []window.Check
	want   []window.Decision
}

// The words of the tables of steps.
const (
	micro  = windowtest.Micro
	milli  = windowtest.Millisecond
	second = windowtest.Second
	day    = windowtest.Day
	year   = windowtest.Year
	win    = windowtest.Win
)

var (
	one         = windowtest.One
	group       = windowtest.Group
	answers     = windowtest.Answers
	allowed     = windowtest.Allowed
	allowedOf   = windowtest.AllowedOf
	allowedLast = windowtest.AllowedLast
	denied      = windowtest.Denied
	never       = windowtest.Never
	cut         = windowtest.Cut
	ask         = windowtest.Ask
	askIn       = windowtest.AskIn
	always      = windowtest.Always
	giveBack    = windowtest.GiveBack
	take        = windowtest.Take
	unlimited   = windowtest.Unlimited
	precise     = windowtest.Precise
	observe     = windowtest.Observe
)
