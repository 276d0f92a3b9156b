// Package ruletest runs tests of rules: it decides the requests of each step and compares the
// answers with those that are expected.
//
// Each test starts with empty logs. Requests are decided in the order of their times, so two
// steps that overlap are two callers at once. On an embedded store time is virtual. On Redis it
// passes, because Redis has its own clock.
//
// A [Coverage] counts which rules and tiers the requests reached.
package ruletest
