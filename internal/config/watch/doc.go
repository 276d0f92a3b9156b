// Package watch notices files that change. A [Watcher] polls names, sizes and times of the files of
// rules and tiers, and calls back when they may have changed. A [Reread] is a value that is read
// from files, such as a certificate or a password. It is read again when one of them has changed.
package watch
