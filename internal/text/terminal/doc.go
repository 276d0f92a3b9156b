// Package terminal writes texts and tables for a terminal of any width. It has columns and widths
// of characters, a [Table] with cells, bars and sparklines, and [Colours].
//
// Text from anywhere goes through package safetext first, so that a terminal obeys nothing in it. A [Table]
// fits its columns into a width: first it makes its pictures smaller, then it leaves out columns,
// and then it cuts texts. [Colours] writes text in colour, or unchanged.
package terminal
