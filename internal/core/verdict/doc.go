// Package verdict describes a decision: a [Verdict] of a request with the [LimitStatus] of each of
// its limits. A LimitStatus says where the limit comes from ([Source]), whether it denies
// ([Enforcement]), what has decided it ([DecidedBy]), its calendar's [Period], and its [UsageUpdate].
// Verdict chooses the decisive limit and merges the metadata of the rules.
//
// Package decide makes a Verdict from one decision of the store for each limit ([Verdict.Fold]).
// Headers, bodies, metadata and metrics are made from the Verdict.
package verdict
