// Package program is what the programs under test/ share: how they start and end,
// their flags, calls at a pace, and what rls reports on /metrics.
//
// A program that starts servers calls process.Run for a TB and gives that to the
// packages servers and edge.
package program
