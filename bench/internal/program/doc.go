// Package program has the start, the end and the flags that the programs of this module share.
//
// A program that starts servers calls process.Run for a TB and gives that to the
// packages servers and edge.
package program
