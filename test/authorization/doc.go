// Package authorization proves who is let in, and that no spelling of a key, a header or a path
// changes whom rls counts.
package authorization
