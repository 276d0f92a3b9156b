// Package tree reads and writes files for tests.
package tree
