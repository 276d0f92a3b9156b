// Package socket reads and writes sockets by system calls that never block, and that the scheduler of
// Go need not know of.
//
// An ordinary read or write announces to the scheduler that the thread may block. In a process that is
// nearly idle, that wakes the thread which watches for this. See ADR 16.
package socket
