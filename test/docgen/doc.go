// Command docgen writes the pages of docs/reference from the code, so that they never differ from
// it: settings, keys of rules and tests, answers, metrics, alerts, API and drop-in, as tables of
// Markdown. make reference runs it; TestReference fails if a page is not what docgen writes. The
// page of the commands, cli.md, is written by TestCommandsPage of cmd/rls.
//
// To add a page, write a function that returns its text into a separate file, and add a line to
// [pages]. Text that no code has is in text/NAME.txt. Everything else belongs next to the code that it
// describes.
package main
