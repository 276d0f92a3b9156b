package settings

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// The header styles.
const (
	StyleRateLimit       = "ratelimit"
	StyleDraft03         = "draft03"
	StyleXRateLimit      = "x-ratelimit"
	StyleXRateLimitEpoch = "x-ratelimit-epoch"
	StyleReference       = "reference"
)

// Headers says which headers are on answers.
type Headers struct {
	Styles []string `yaml:"styles" doc:"headers on answers: ratelimit, draft03 (RateLimit-*), x-ratelimit (X-RateLimit-*), x-ratelimit-epoch (Unix time), reference (as envoyproxy/ratelimit). Denials have Retry-After"`
	// Reference names the headers of StyleReference.
	Reference ReferenceHeaders `yaml:"-"`
}

// ReferenceHeaders are the names of the headers of the style reference.
type ReferenceHeaders struct {
	Limit     string `yaml:"-"`
	Remaining string `yaml:"-"`
	Reset     string `yaml:"-"`
}

// all returns the names in the order of the settings.
func (h *ReferenceHeaders) all() []string { return []string{h.Limit, h.Remaining, h.Reset} }

// headersOf are the headers of each style but StyleReference.
var headersOf = map[string][]string{
	StyleRateLimit:       {"ratelimit", "ratelimit-policy"},
	StyleDraft03:         {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"},
	StyleXRateLimit:      {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
	StyleXRateLimitEpoch: {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
}

// CheckStyles returns what is wrong with a list of header styles. names are those of the style
// reference.
func CheckStyles(styles []string, names ReferenceHeaders) (messages []string) {
	known := []string{StyleRateLimit, StyleDraft03, StyleXRateLimit, StyleXRateLimitEpoch, StyleReference}
	for i, s := range styles {
		switch {
		case slices.Contains(styles[:i], s):
			messages = append(messages, strict.Quote(s)+" is listed twice")
		case !slices.Contains(known, s):
			messages = append(messages, strict.NotOneOf(s, known))
		}
	}
	if slices.Contains(styles, StyleXRateLimit) && slices.Contains(styles, StyleXRateLimitEpoch) {
		messages = append(messages, fmt.Sprintf("%s and %s exclude each other: they use the same headers", StyleXRateLimit, StyleXRateLimitEpoch))
	}
	if !slices.Contains(styles, StyleReference) {
		return messages
	}
	for i, s := range styles {
		if slices.Contains(styles[:i], s) {
			continue
		}
		for _, name := range names.all() {
			if slices.Contains(headersOf[s], strings.ToLower(name)) {
				messages = append(messages, fmt.Sprintf("%s and %s exclude each other: both send %s: leave one out", s, StyleReference, name))
				break
			}
		}
	}
	return messages
}

// maxHeaderName bounds a header's name in bytes.
const maxHeaderName = 100

// notForUs are headers of answers with another meaning. Some of them would break the answer.
var notForUs = []string{
	"retry-after", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive",
	"proxy-connection", "upgrade", "te", "trailer", "host", "date", "location", "set-cookie", "www-authenticate",
}

// headers checks the styles, and the names of the style reference.
func (l *settingsLoader) headers() {
	h := &l.settings.Headers
	for _, message := range CheckStyles(h.Styles, h.Reference) {
		l.problem("headers.styles", "%s", message)
	}
	paths, names := []string{"dropin.headers.limit", "dropin.headers.remaining", "dropin.headers.reset"}, h.Reference.all()
	for i, name := range names {
		lower := strings.ToLower(name)
		same := slices.IndexFunc(names[:i], func(other string) bool { return strings.EqualFold(other, name) })
		switch {
		case name == "":
			l.problem(paths[i], "the name of the header is missing: write one, or remove the setting")
		case strings.HasPrefix(name, ":"):
			l.problem(paths[i], "%s is a pseudo header of HTTP/2: write the name of a header", strict.Quote(name))
		case len(name) > maxHeaderName:
			l.problem(paths[i], "a header's name has at most %d bytes", maxHeaderName)
		case !httpguts.ValidHeaderFieldName(name):
			l.problem(paths[i], "%s is not the name of a header: write letters, digits and -", strict.Quote(name))
		case slices.Contains(notForUs, lower):
			l.problem(paths[i], "the header %s has another meaning: write another name", lower)
		case same >= 0:
			l.problem(paths[i], "%s is also %s: upper and lower case are the same in the name of a header", strict.Quote(name), paths[same])
		}
	}
}
