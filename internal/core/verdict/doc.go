// Package verdict is what a decision says: a [Verdict] of a request with the [LimitStatus] of each of
// its limits. Package decide makes it, with one decision of the store for each limit ([Verdict.Fold]);
// headers, bodies, metadata and metrics are made of it.
package verdict
