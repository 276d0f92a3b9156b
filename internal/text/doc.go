// Package text and the packages in it answer one question: how does text get in and out without
// harm? They parse addresses and files from outside, and write numbers, tables and hostile text for
// people. They import nothing of this module, and any package may import them.
//
//   - text itself: [WithoutMark] removes the byte-order mark of a file, and [Lines] reads lines.
//   - clientaddr: reads addresses of clients.
//   - httpfield: names and values of header fields.
//   - safetext: escapes and cuts hostile text.
//   - terminal: tables, widths and colours for a terminal.
//   - words: numbers and times for people.
package text
