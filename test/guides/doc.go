// Package guides runs the commands of the pages below docs, and compares what they print with what
// the pages show.
package guides
