// Package envoycheck says which limits are in force at a live Envoy, which are not, and why.
//
// [Run] compares what Envoy's admin port shows (package envoydump) with what is known of rls, a
// [Service], and returns a [Report]. First it finds the connection managers, their filters that ask rls,
// and the descriptors that each route can send, with the rules that these may match. A value that
// differs by request may be any. Then each check reports a [Finding] for what is wrong, with a [Code].
// To add a check, add its kind to kinds.go, the check to Run, and a fault to test/check.
//
// What a check cannot read it says with notRead, so that a person does not take it for right.
// A false alarm costs more than a missed fault. Only these listeners are checked: those that ask rls,
// and those on the same port or with the same clusters. A descriptor without a rule is an alarm only if
// a rule that no route reaches is alike. A filter that only reports the end of requests is exempt from
// what makes a limit.
//
// Nothing is sent to a listener but by a [Prober].
package envoycheck
