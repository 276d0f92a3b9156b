// Package text and the packages in it answer one question: how does text get in and out without
// harm? They parse addresses and files from outside, and write numbers, tables and hostile text for
// people. They import nothing of this module, and any package may import them.
package text
