// Package reference has the references for translations of a log: [Take], [TakeAhead] and
// [TakeBack].
package reference
