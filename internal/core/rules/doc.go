// Package rules has one generation of the configuration: [Rules] with [Domain], [Rule], [Terms] and
// [Limit]. It also has the choices of rules ([OnStoreError], header styles, [ChargeOnce]), canonical
// addresses, names of limits, overrides, and limits in words. The readers of files and xDS, and Go
// programs, make rules with [NewRules] and [Rules.Add]. After that, rules do not change, and all
// goroutines share them. The package knows no requests.
//
// A rule limits the descriptors that end on its path. It has limits for each tier, and may have a
// subject: the entry that identifies the caller. [Rules.Add] puts the path into the form that
// requests have ([CanonicalNode], digests of API keys), names the rule, and finds the parts of the
// names of its logs ([Rule.Parts]).
//
// A subject may have overrides: limits by the name of a rule, which replace those of its tier
// ([OverrideLimits]). The log is the same if the window is the same.
//
// Rules and limits in words: [Rule.Words], [Limit.Words], [Rule.Traits], [FormatLimit].
package rules
