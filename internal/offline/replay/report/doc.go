// Package report writes the report of a replay: as text for a terminal, as JSON, and as one HTML
// file. It has the sentences, tables and SVG charts of these forms, and the notes on what may
// mislead.
//
// The HTML file is for people who do not run the command. It has its own style sheet and its own
// charts, no script, and loads nothing from elsewhere. Text of a log is escaped in each form:
// control characters and invisible characters are written as their codes.
package report
