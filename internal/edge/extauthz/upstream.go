package extauthz

import (
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/text/httpfield"
)

// upstream are the changes to a request before it goes to the upstream.
type upstream struct {
	headers          []answer.Header // to set
	remove           []string
	removeParameters []string // names, spelled as in the path
}

// forget removes all changes and keeps the memory for the next request.
func (u *upstream) forget() {
	*u = upstream{
		headers: reuse.Slice(u.headers), remove: reuse.Slice(u.remove), removeParameters: reuse.Slice(u.removeParameters),
	}
}

// addUpstream adds the headers that name the caller to the upstream, and removes the
// credentials.
func (s *Service) addUpstream(c *call) {
	u := &c.upstream
	id := c.caller.id
	if c.caller.subject == nil {
		id = "" // the caller is anonymous: its id is an address
	}
	u.set(s.opts.SubjectHeader, id)
	u.set(s.opts.TierHeader, c.caller.tier)
	for _, l := range s.opts.LabelHeaders {
		label := ""
		if c.caller.subject != nil {
			label = c.caller.subject.Labels()[l.Label]
		}
		u.set(l.Header, label)
	}
	u.removeCredentials(&c.in, s.opts.Credentials, s.opts.RemoveCredential)
}

// set sets a header. If the value is empty or a header cannot hold it, set removes the
// header instead, so that the client's own header never stays. An empty name does nothing.
func (u *upstream) set(name, value string) {
	switch {
	case name == "":
	case validText(value):
		u.headers = append(u.headers, answer.Header{Name: name, Value: value})
	default:
		u.remove = append(u.remove, name)
	}
}

// validText reports whether text can be the value of a header: visible ASCII, with spaces
// only between other characters.
func validText(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && strings.Trim(text, " ") == text && httpfield.ValidValue(text)
}

// removeCredentials removes every credential of the request, not only the one that
// counted: the upstream might take the others for checked. It always removes query
// parameters, because proxies and applications log paths. It removes header fields if
// fields is true.
func (u *upstream) removeCredentials(r *request, credentials []settings.Credential, fields bool) {
	rewritten := false
	for _, c := range credentials {
		if c.Kind == settings.CredentialQuery {
			credential(c).eachParameter(r.query(), func(raw, _ string, _ bool) { u.removeParameters = append(u.removeParameters, raw) })
			continue
		}
		if !fields {
			continue
		}
		switch _, p := credential(c).find(r); {
		case p == absent:
		case c.Kind == settings.CredentialHeader:
			u.remove = append(u.remove, c.Name)
		case c.Kind == settings.CredentialCookie && !rewritten:
			rewritten = true
			u.set(headerCookie, otherCookies(r, credentials))
		case c.Kind != settings.CredentialCookie && !slices.Contains(u.remove, headerAuthorization):
			u.remove = append(u.remove, headerAuthorization)
		}
	}
}

// otherCookies returns the cookies that no reader takes for a credential, or "".
func otherCookies(r *request, credentials []settings.Credential) string {
	header, _ := r.fields.get(headerCookie, ";")
	var others []string
	for one := range strings.SplitSeq(header, ";") {
		isCredential := slices.ContainsFunc(credentials, func(c settings.Credential) bool {
			name, _ := cutCookie(one)
			return c.Kind == settings.CredentialCookie && (alike(name, c.Name) || credential(c).joinedInto(one))
		})
		if one = strings.Trim(one, " \t"); one != "" && !isCredential {
			others = append(others, one)
		}
	}
	return strings.Join(others, "; ")
}
