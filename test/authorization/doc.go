// Package authorization proves whose requests pass, and that no spelling of a key, a header or a path
// changes whom rls counts.
package authorization
