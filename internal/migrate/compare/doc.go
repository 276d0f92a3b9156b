// Package compare asks another rate-limit service what this one has decided, and reports where the
// answers differ. A [Comparer] sends the bytes of a fraction of the calls to the other service over
// gRPC. It counts pairs of overall codes, and logs a difference with its [Reason]. An operator uses
// it before a switch from one service to another.
//
// # The way of a call
//
//  1. The adapter decides a call and gives it to [Comparer.Compare], with the request as it
//     came. Compare never blocks.
//  2. Compare leaves out a call that is not sampled. The fraction is one of descriptors, not
//     of calls: either all calls with the same domain and descriptors are sent, or none. So the
//     counters of the other service are complete for the descriptors that it sees. Every
//     instance chooses the same descriptors.
//  3. A goroutine sends the same bytes to the other service. If too many calls or too many
//     bytes wait for an answer, the call is counted as skipped instead.
//  4. The two overall codes are counted as a pair. If one denies and the other does not, a
//     sampled log line has the [Reason].
//
// Nothing here charges a log of this service, delays its answer, or makes it fail. The other
// service charges what it is asked. An answer that comes too late is counted as a timeout,
// although the other service may have charged the call.
//
// # Reasons
//
// A [Reason] is a claim that the package can prove, as far as one process can know:
//
//   - [WindowEdge]: this service denies, and the other one counts in fixed windows. The hit that
//     must expire first happened before the last edge of the other's window. So the other
//     service has begun to count anew, and had room.
//   - [FreeDenial]: the other service denies. Since the last edge of its window, this service
//     has denied a call with the same descriptor. The other service charged that call, and this
//     one did not.
//   - [Other]: neither holds. The limits may differ, or one of the services may see calls that
//     the other one does not see. Two calls at the same instant may also arrive in another
//     order.
//
// If the other service does not name the same limit, the reason is [Other].
//
// # Loops
//
// Calls carry the header [adapter.Compared]. The daemon does not give marked calls to Compare. So two
// services that compare with each other, or one that compares with itself, do not call each
// other for ever.
package compare
