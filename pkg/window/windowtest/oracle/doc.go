// Package oracle has naive stores: they decide as the contract of package window says, by loops
// over all that was ever charged. It has the exact arithmetic of each policy, and a [Ledger] of
// what was spent.
package oracle
