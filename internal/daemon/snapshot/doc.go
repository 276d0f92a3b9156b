// Package snapshot keeps the memory store in a file from the end of one process to the start of the
// next. It reads, writes, renames and syncs the file and its folder.
//
// [Open] reads the file, and [Store.Close] writes it. A file is replaced only by a complete
// one. A file that cannot be read is renamed to FILE.bad, because it may still be of use to
// the operator. The format is that of [memstore.Store.Save].
package snapshot
