package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/safetext"
	"github.com/slidegate/slidegate/internal/words"
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

// length returns a time in seconds in the two largest units: 320 ms, 12 s, 3 min 20 s.
func length(seconds float64) string {
	switch {
	case math.IsNaN(seconds) || seconds < 0:
		return "–"
	case seconds == 0:
		return "0 s"
	case seconds < 0.001:
		return strconv.FormatFloat(math.Max(seconds*1e6, 1), 'f', 0, 64) + " µs"
	case seconds < 1:
		return strings.TrimSuffix(strconv.FormatFloat(seconds*1000, 'f', tenths(seconds < 0.01), 64), ".0") + " ms"
	case seconds < 10:
		return strings.TrimSuffix(strconv.FormatFloat(seconds, 'f', 1, 64), ".0") + " s"
	}
	whole := uint64(math.Min(math.Ceil(seconds), 1e15))
	units := []struct {
		name string
		of   uint64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}}
	for i, u := range units {
		if whole < u.of {
			continue
		}
		text := words.Count(whole/u.of) + " " + u.name
		if rest := whole % u.of; rest > 0 && i < 3 && rest/units[i+1].of > 0 {
			text += fmt.Sprintf(" %d %s", rest/units[i+1].of, units[i+1].name)
		}
		return text
	}
	return "0 s"
}

func tenths(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// window returns the length of a window for a sentence: second, minute, 10 s.
func window(seconds float64) string {
	switch seconds {
	case 1:
		return "second"
	case 60:
		return "minute"
	case 3600:
		return "hour"
	case 86400:
		return "day"
	case 7 * 86400:
		return "week"
	}
	return length(seconds)
}

// size returns a number of bytes: 950 B, 12.3 kB.
func size(n int64) string {
	if text := words.Short(float64(n)); strings.ContainsAny(text, "kMGT") {
		return text[:len(text)-1] + " " + text[len(text)-1:] + "B"
	}
	return strconv.FormatInt(n, 10) + " B"
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

// ago returns how long ago an instant was.
func ago(at, now time.Time) string {
	switch d := now.Sub(at); {
	case at.IsZero():
		return "never"
	case d < time.Second:
		return "just now"
	default:
		return length(math.Floor(d.Seconds())) + " ago"
	}
}

// percent returns a share for people: 0 %, 0.3 %, 12 %.
func percent(part, of float64) string {
	if of <= 0 || part <= 0 {
		return "0 %"
	}
	p := 100 * part / of
	switch {
	case p < 0.1:
		return "<0.1 %"
	case p < 10:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	}
	return strconv.FormatFloat(math.Min(p, 100), 'f', 0, 64) + " %"
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
