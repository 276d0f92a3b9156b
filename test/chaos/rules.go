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

// near is the key of a rule whose limit is the region's own.
const near = "near"

// rulesFile returns the rules of the callers. If they are of all regions, there is one more for
// the region.
func rulesFile(rules []string, far bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	scope := ""
	if far {
		scope = ", scope: global"
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {name: %[1]s, window: 1s, requests: 1000000}\n", near)
	}
	for _, choice := range rules {
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {name: %s, window: %s, requests: %d, precision: 0s, on_store_error: %s%s}\n",
			choice, choice, largeWindow, largeLimit, choice, scope)
	}
	return b.String()
}
