// Package replay decides requests at times that the caller gives, by the code that decides live
// requests.
//
// The policy and the stores take time as an argument, so a month of requests is decided as fast
// as the process can. A [Timeline] is one service on a virtual clock: rules, an embedded store
// and nothing else.
package replay
