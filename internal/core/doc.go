// Package core is the wing that answers one question: may this request pass, and if not, how long
// must its caller wait? It has no code itself. Read its packages in this order:
//
//   - rules: what the configuration limits; a generation that nothing changes
//   - identity: whom a request is for, and the names of its logs
//   - inflight: streams, what they hold, and who waits for it
//   - verdict: what a decision says of a request, and of each of its limits
//   - decide: match, subjects, checks, one store call
//   - explain: which limits apply to a subject, and why
//   - tier, with its sources: which subject has an API key, and what it may do
//   - denials, lease, fallback: what one process knows without its store
package core
