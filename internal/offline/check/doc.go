// Package check checks what a service would load, for rls validate: settings, rules, tiers and
// files of tests. [Run] reads and checks, also the record of a customer in the customer source.
// [Result.WriteText] says what the rules mean, warn of and cost in memory.
package check
