package settings

import (
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// serverName takes the query option sni out of a URL: the name that the server's certificate must
// have, if it is not the host of the URL.
func (l *settingsLoader) serverName(path string, u *URL) string {
	before, query, _ := strings.Cut(string(*u), "?")
	var rest []string
	name := ""
	for option := range strings.SplitSeq(query, "&") {
		value, ok := strings.CutPrefix(option, "sni=")
		if !ok {
			rest = append(rest, option)
			continue
		}
		name, _ = url.QueryUnescape(value)
		if !hostName.MatchString(strings.ToLower(name)) {
			l.problem(path, "sni=%s is not the name of a host", strict.Quoteless(value))
			return ""
		}
	}
	if name != "" {
		*u = URL(before)
		if len(rest) > 0 {
			*u += URL("?" + strings.Join(rest, "&"))
		}
	}
	return name
}

// secure reads an address that may begin with grpcs://, for TLS, and end with ?sni=NAME. It leaves
// host:port.
func (l *settingsLoader) secure(section string, a *Address, t *ClientTLS) {
	rest, ok := strings.CutPrefix(string(*a), "grpcs://")
	if !ok {
		return
	}
	u := URL(rest)
	t.Enabled, t.ServerName = true, l.serverName(section+".address", &u)
	*a = Address(u.Reveal())
}
