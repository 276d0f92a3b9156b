// Package docs serves the project's Markdown pages on the admin port as HTML, with an index and
// anchors. [URL] makes the addresses of pages for texts of rls, by its version.
package docs
