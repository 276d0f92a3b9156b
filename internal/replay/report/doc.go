// Package report writes the report of a replay: as text for a terminal, as JSON, and as one HTML
// file.
//
// The HTML file is for people who do not run the command. It has its own style sheet and its own
// charts, no script, and refers to nothing elsewhere. Text of a log is escaped in each form, and
// characters that would be obeyed or not be seen are spelled out.
package report
