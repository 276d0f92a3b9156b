// Package socket reads and writes sockets without telling the scheduler of Go.
//
// An ordinary read or write tells the scheduler that the thread may block, and in a process that is
// nearly idle that wakes the thread which watches for this. Both are waste if the system call never
// blocks. See ADR 16.
package socket
