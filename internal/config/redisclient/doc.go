// Package redisclient makes clients of Redis from settings: for the store and for the customer
// source. It sets each option of the library go-redis once, with its reason: timeouts, retries,
// pools, TLS, logins, Sentinel and Cluster. It dials servers, and its errors say which address
// failed and why.
//
// A client works for one server, for sentinels and for a cluster. It reads passwords and
// certificates again for new connections when their files change. It never sends a command
// twice that may have run.
//
// [New] makes a client. Clients are safe for concurrent use.
package redisclient
