// Package inflight proves that limits of requests in flight admit no more, and that each end of a
// request gives its slot back.
package inflight
