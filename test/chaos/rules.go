package main

import (
	"fmt"
	"strings"
	"time"
)

// choices are the values of on_store_error for which the service has a rule. No caller reaches
// the limits, so every allowed call stays in its log as an entry of its own.
var choices = []string{"allow", "deny", "local"}

const (
	largeLimit  = 10_000
	largeWindow = time.Hour
)

func rulesFile(rules []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for _, choice := range rules {
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {name: %s, window: %s, requests: %d, precision: 0s, on_store_error: %s}\n",
			choice, choice, largeWindow, largeLimit, choice)
	}
	return b.String()
}
