// Package watch notices files that change. A [Watcher] calls back when the files of rules
// and tiers may have changed. A [Reread] is a value that is read from files, such as a
// certificate, and read again when one of them has changed.
package watch
