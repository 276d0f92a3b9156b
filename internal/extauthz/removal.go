package extauthz

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/reuse"
)

// upstream is what becomes of a request on its way on.
type upstream struct {
	set              []answer.Header
	remove           []string
	removeParameters []string // names as the path writes them
}

// forget leaves nothing but memory for the next request.
func (u *upstream) forget() {
	*u = upstream{
		set: reuse.Slice(u.set), remove: reuse.Slice(u.remove), removeParameters: reuse.Slice(u.removeParameters),
	}
}

// say sets a header, or removes it where there is nothing to say that a header can
// hold: what a client has sent must not stay in either case.
func (u *upstream) say(name, value string) {
	switch {
	case name == "":
	case validText(value):
		u.set = append(u.set, answer.Header{Name: name, Value: value})
	default:
		u.remove = append(u.remove, name)
	}
}

// validText reports whether text can be a header's value: visible ASCII and, not at
// its ends, spaces.
func validText(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && strings.Trim(text, " ") == text && httpguts.ValidHeaderFieldValue(text)
}

// removeCredentials takes off every credential that is there, not only the one
// that counted: the upstream would take the others for checked too. Parameters
// always go: paths are logged everywhere.
func (u *upstream) removeCredentials(r *request, credentials []Credential, fields bool) {
	rewritten := false
	for _, c := range credentials {
		if c.Kind == Query {
			c.eachParameter(r.query(), func(raw, _ string, _ bool) { u.removeParameters = append(u.removeParameters, raw) })
			continue
		}
		if !fields {
			continue
		}
		switch _, p := c.find(r); {
		case p == absent:
		case c.Kind == Header:
			u.remove = append(u.remove, c.Name)
		case c.Kind == Cookie && !rewritten:
			rewritten = true
			u.say(headerCookie, otherCookies(r, credentials))
		case c.Kind != Cookie && !slices.Contains(u.remove, headerAuthorization):
			u.remove = append(u.remove, headerAuthorization)
		}
	}
}

// otherCookies returns the cookies that are no credentials, "" if there are none.
func otherCookies(r *request, credentials []Credential) string {
	header, _ := r.fields.get(headerCookie, ";")
	var others []string
	for one := range strings.SplitSeq(header, ";") {
		isCredential := slices.ContainsFunc(credentials, func(c Credential) bool {
			name, _ := cutCookie(one)
			return c.Kind == Cookie && (name == c.Name || c.joinedInto(one))
		})
		if one = strings.Trim(one, " \t"); one != "" && !isCredential {
			others = append(others, one)
		}
	}
	return strings.Join(others, "; ")
}
