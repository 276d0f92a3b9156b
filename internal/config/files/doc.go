// Package files finds and reads the files of rules and tiers. [List] says which files a path
// of rules stands for. [Read] and [ReadFile] read a regular file up to a bound in bytes,
// and [Text] takes a byte-order mark off.
package files
