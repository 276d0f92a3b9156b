// Package core is the wing that answers one question: may this request pass, and if not, how long
// must its caller wait? It has no code itself. Read its packages in this order:
//
//   - rules: what the configuration limits; a generation that nothing changes
//   - identity: whom a request is for, and the names of its logs
//   - inflight: streams, what they hold, and who waits for it
//   - decide: match, subjects, checks, one store call, verdict
//   - explain: which limits apply to a subject, and why
//   - tier, with its sources: which subject has an API key, and what it may do
//   - denials, lease, fallback: what one process knows without its store
package core
