// Package admin serves what operators look at: metrics, the active rules, and
// profiles. It has no authentication, so it listens on loopback by default.
package admin
