// Package program has the code that the programs of this module share: start and end, flags,
// calls at a pace, and reading /metrics of rls.
//
// A program that starts servers calls process.Run for a TB and gives that to the
// packages servers and edge.
package program
