// Package envoycheck says which limits are in force at a live Envoy, which are not, and why. Each
// check compares what Envoy's admin port shows with what is known of rls, and returns a [Finding]
// with a [Code].
package envoycheck
