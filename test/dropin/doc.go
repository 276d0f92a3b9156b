// Package dropin proves that rls takes the place of envoyproxy/ratelimit: its settings, its
// answers, and a switch there and back.
package dropin
