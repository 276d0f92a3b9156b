// Package inflight implements limits of requests in flight. Such a limit counts active requests: a
// [Stream] makes a check hold its cost under the id of the client's stream ([NewStreamID]), and
// [Releases] give it back when the stream ends. [Waiters] let a request wait for a moment if the
// limit is full: a client's next request often comes before the end of its last request.
package inflight
