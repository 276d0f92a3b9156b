// Package core is the wing that answers one question: may this request pass, and if not, how long
// must its caller wait? It has no code itself. Read its packages in this order:
//
//   - rules: what the configuration limits; a generation that nothing changes
//   - identity: the subject of a request, and the names of its logs
//   - grant: limits that an operator has raised for a time
//   - probe: denies the calls with one key for some seconds, and notes what they had
//   - inflight: streams, their holds, and the requests that wait for room
//   - verdict: what a decision says of a request, and of each of its limits
//   - decide: the steps of a decision: match, subjects, checks, one store call
//   - explain: which limits apply to a subject, and why
//   - tier: which subject has an API key; the directory of a file
//   - tier/cache: the answers of a customer source in memory
//   - tier/apikey: the texts of API keys: Authorization, Basic, names of secret entries
//   - tier/strictjson: the JSON objects that customer sources answer with
//   - tier/httpsource: a customer source at an HTTP endpoint of the operator
//   - tier/pgsource: a customer source in PostgreSQL, with its queries
//   - tier/redissource: a customer source in hashes of Redis
//   - denials: what the shared store has denied, repeated without asking it
//   - lease: hits that this process has reserved in the shared store
//   - fallback: quotas of this process while the shared store fails
//   - cells: numbers that many cores add to
//   - reuse: the memory of one request, cleared for the next
//   - coretest, tier/tiertest, reuse/reusetest: helpers of tests
package core
