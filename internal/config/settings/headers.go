package settings

import (
	"fmt"
	"slices"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
)

// Headers says which headers are on answers.
type Headers struct {
	Styles []string `yaml:"styles" doc:"headers on answers: ratelimit, draft03 (RateLimit-*), x-ratelimit (X-RateLimit-*), x-ratelimit-epoch (Unix time), reference (as envoyproxy/ratelimit). Denials have Retry-After"`
}

// CheckStyles returns what is wrong with a list of header styles. It does not compare the names of
// headers that a drop-in has.
func CheckStyles(styles []string) (messages []string) {
	known := []string{rules.StyleRateLimit, rules.StyleDraft03, rules.StyleXRateLimit, rules.StyleXRateLimitEpoch, rules.StyleReference}
	for i, s := range styles {
		switch {
		case slices.Contains(styles[:i], s):
			messages = append(messages, strict.Quote(s)+" is listed twice")
		case !slices.Contains(known, s):
			messages = append(messages, strict.NotOneOf(s, known))
		}
	}
	for _, pair := range [][2]string{{rules.StyleXRateLimit, rules.StyleXRateLimitEpoch}, {rules.StyleDraft03, rules.StyleReference}} {
		if slices.Contains(styles, pair[0]) && slices.Contains(styles, pair[1]) {
			messages = append(messages, fmt.Sprintf("%s and %s exclude each other: they use the same headers", pair[0], pair[1]))
		}
	}
	return messages
}
