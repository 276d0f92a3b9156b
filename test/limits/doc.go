// Package limits proves that no limit is exceeded, and that the answers of rls are true: header
// fields, bodies and waits.
package limits
