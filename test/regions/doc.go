// Package regions has the tests and benchmarks of several regions. TestReplication and TestCapacity
// print tables with -v.
//
// # What replication admits
//
// TestReplication decides on a virtual clock what regions admit that count for themselves and
// send each other what they have counted. Each region has logs in the memory store, which is the
// code of the service. The simulation is kind to replication: no hit is lost, all arrive after
// the same delay, each keeps its own time, and copies never contradict each other.
package regions
