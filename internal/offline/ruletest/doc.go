// Package ruletest runs tests of rules: it decides the requests of each step and compares the
// answers with those that are expected. A [Runner] runs tests with virtual time or against Redis
// ([InMemory], [InStore]), a [Failure] says what differs, and a [Report] is text or JUnit XML.
// Package config/ruletests reads the files.
//
// Each test starts with empty logs. Requests are decided in the order of their times, so two
// steps that overlap are two callers at once. On an embedded store time is virtual. On Redis it
// passes, because Redis has its own clock.
//
// A [Coverage] counts which rules, tiers and overrides of subjects the requests reached. A [Report]
// has the results of several files, and writes them as text or JUnit. Names of tests and of
// rules may be hostile: no control character of them gets into a report.
//
// A test fails if it expects nothing, unless [Runner.Verbose] is set: then a person reads its
// answers. It also fails if the store did not answer, whatever on_store_error of the rules says.
package ruletest
