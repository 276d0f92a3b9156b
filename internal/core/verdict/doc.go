// Package verdict is what a decision says: a [Verdict] of a request with the [LimitStatus] of each
// of its limits. A LimitStatus says whose limit it is ([Source]), whether it denies
// ([Enforcement]), what has decided it ([DecidedBy]), its calendar's [Period], and its
// [UsageUpdate]. Verdict chooses the decisive limit and merges the metadata of the rules.
//
// Package decide makes it, with one decision of the store for each limit ([Verdict.Fold]); headers,
// bodies, metadata and metrics are made of it.
package verdict
