// Package config answers one question: what did the operator write, and is it right? Its wing turns
// files, variables and messages of an xDS server into plain values, and nothing outside of it knows
// YAML. Read its packages in this order:
//
//   - strict: YAML into structs; every problem has its position.
//   - files: finds and reads the files of a path.
//   - watch: notices that files change.
//   - settings: how the service runs, from a file and the environment.
//   - redisclient: opens a client of Redis by settings.
//   - rules: what is limited, from files, from Go and from an xDS server, checked by one package.
//   - tiers: who has which tier, from a tiers file.
//   - sources: opens another customer source by settings.
//   - ruletests: reads tests of rules; package offline/ruletest runs them.
//   - xds: the client that gets rules from an xDS server; package rules checks them.
//   - configtest: helpers of tests.
//   - config itself: [Load] makes all that one [Generation].
//
// # Terms
//
//   - A rules file says what is limited. A tiers file says which subject has which tier and
//     which API keys.
//   - A [Generation] is one consistent reading of the rules and tiers files, made by [Load].
//     It is immutable. A reload makes a new one and swaps it.
//   - A problem is a mistake in a file. Load returns all of them as one error. A problem
//     never shows a secret: a plain API key of a tiers file, or the value of a rule for an
//     entry that holds API keys or seems to.
//   - A warning is a problem with what is right but unwise, such as an API key in plain text.
//     It is in [Generation.Warnings], and is not an error.
//
// # Files
//
// A directory of rules stands for all *.yaml and *.yml files in it and below, in the order of
// their paths. Load skips other files with a warning. It reads every file once, however many
// symbolic links lead to it.
//
// Load refuses a tiers file or a rules file above 16 MiB, since the YAML library takes about
// 30 times the size of a file while it reads it. More subjects belong into another customer
// source, more rules into several files.
//
// # Reload
//
// A watcher calls back when the files may have changed. The callback runs Load. Without an
// error it swaps the generation, and with one the last good generation stays.
// If the content has changed, so has [Generation.Digest].
package config
