package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/words"
)

// Bounds of shown text, in characters.
const (
	maxShown = 120  // in a page; the style sheet may cut it earlier
	maxTitle = 1024 // in the title of an element that was cut
)

// userText returns an element that shows text of a client or a file.
func userText(text string) template.HTML {
	title := ""
	shown := safetext.Runes(text, maxShown)
	if utf8.RuneCountInString(shown) > 16 {
		title = ` title="` + template.HTMLEscapeString(safetext.Runes(text, maxTitle)) + `"`
	}
	return template.HTML(`<bdi class="ut"` + title + `>` + template.HTMLEscapeString(shown) + `</bdi>`) //nolint:gosec // escaped above
}

// prose returns an element that shows a sentence, which may have the text of a client in it.
func prose(text string) template.HTML {
	return template.HTML(`<bdi>` + template.HTMLEscapeString(safetext.Runes(text, 600)) + `</bdi>`) //nolint:gosec // escaped here
}

// clock returns an element with the time of day, and the date too if it is not today.
func clock(at, now time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	at = at.UTC()
	layout := "15:04:05"
	if at.Format(time.DateOnly) != now.UTC().Format(time.DateOnly) {
		layout = "2006-01-02 15:04:05"
	}
	return template.HTML(`<time datetime="` + at.Format(time.RFC3339) + `" title="` + at.Format("2006-01-02 15:04:05.000 MST") + `">` + at.Format(layout) + `</time>`) //nolint:gosec // digits and letters of a time
}

func ago(at, now time.Time) string {
	switch d := now.Sub(at); {
	case at.IsZero():
		return "never"
	case d < time.Second:
		return "just now"
	default:
		return words.Duration(d.Truncate(time.Second)) + " ago"
	}
}

// lines returns a text of several lines, each cut to a bound, and at most 40 of them.
func lines(text string) string {
	const most = 40
	all := strings.Split(text, "\n")
	rest := len(all) - most
	all = all[:min(len(all), most)]
	for i, line := range all {
		all[i] = safetext.Runes(line, 400)
	}
	if rest > 0 {
		all = append(all, fmt.Sprintf("… and %d more lines", rest))
	}
	return strings.Join(all, "\n")
}
