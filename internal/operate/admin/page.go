package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
)

// wantsHTML reports whether a browser asks. ?format=html and ?format=text say so whatever Accept says.
func wantsHTML(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "html":
		return true
	case "text":
		return false
	}
	return strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), "text/html")
}

// WriteText answers with a page of plain text. It ignores errors, because they mean that the client
// has gone.
func WriteText(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// An Entry is one line of an index.
type Entry struct{ Path, Text string }

// Index returns the page that lists the paths of a port. note is its last sentence.
func Index(title string, entries []Entry, note string) http.HandlerFunc {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", title)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range entries {
		fmt.Fprintf(t, "%s\t%s\n", e.Path, e.Text)
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%s\n", note)
	return func(w http.ResponseWriter, _ *http.Request) { WriteText(w, http.StatusOK, b.String()) }
}
