package envoycheck

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/offline/envoydump"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// maxWide bounds the routes of a virtual host with which each later one is compared.
const maxWide = 1000

// hiddenRoutes finds routes that never get a request, because a wider one is before them.
func (in *input) hiddenRoutes() {
	for _, m := range in.managers {
		var wide []*route
		for _, late := range m.routes {
			if len(wide) > 0 && wide[0].host != late.host {
				wide = nil
			}
			at := slices.IndexFunc(wide, func(early *route) bool {
				return early.paths.cover(late.paths) && slices.ContainsFunc(late.sends, func(s *sent) bool {
					return slices.ContainsFunc(s.rules, func(r *Rule) bool { return r.Limits && !early.asksBefore(r) })
				})
			})
			if at >= 0 {
				in.report(routeHidden, late.where, "The %s is before it and takes every request of this route: its limits never apply.", wide[at].where)
			}
			switch {
			case len(wide) == maxWide:
				in.notRead("whether a route hides another one, behind the first %d of virtual host %s of %s", maxWide, late.host.Name, m.where)
			case late.wide():
				wide = append(wide, late)
			}
		}
	}
}

// wide reports whether a route has no condition but one of the path.
func (r *route) wide() bool {
	m := &r.Match
	return len(m.Headers)+len(m.Query)+len(m.Cookies)+len(m.State)+len(m.Metadata) == 0 && m.GRPC == nil && m.TLS == nil && m.Fraction == nil
}

// paths are those that a route takes.
type paths struct {
	*envoydump.Match
	// begin is what each of them begins with, and whole says that one may end there.
	begin string
	whole bool
	folds bool // the case does not matter
	regex *regexp.Regexp
}

func pathsOf(m *envoydump.Match) paths {
	p := paths{Match: m, begin: cmp.Or(m.Path, m.SeparatedPrefix), whole: m.Prefix == nil, folds: m.CaseSensitive != nil && !*m.CaseSensitive}
	if m.Prefix != nil {
		p.begin = *m.Prefix
	}
	if whole, err := envoyfile.WholeText(m.Regex.Regex); m.Regex.Regex != "" && err == nil {
		p.regex = whole
		p.begin, p.whole = regexp.MustCompile(m.Regex.Regex).LiteralPrefix() // WholeText has compiled it
	}
	return p
}

// takes reports whether these are the path of a request, or a path that a regular expression fits.
func (p paths) takes(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return p.Path != "" && path == p.Path || p.regex != nil && p.regex.MatchString(path)
}

// cover reports whether the paths of a wide route are all those of another one, as far as their texts
// show that.
func (p paths) cover(o paths) bool {
	switch {
	case p.Prefix != nil && (*p.Prefix == "/" || *p.Prefix == ""), slices.Contains([]string{".*", ".+", "/.*"}, strings.Trim(p.Regex.Regex, "^$")):
		return true
	case p.regex != nil:
		return p.Regex.Regex == o.Regex.Regex || o.Path != "" && !o.folds && p.regex.MatchString(o.Path)
	case o.folds && !p.folds:
		return false
	}
	hasPrefix := strings.HasPrefix
	if p.folds {
		hasPrefix = func(s, prefix string) bool {
			return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
		}
	}
	switch {
	case p.Prefix != nil:
		return hasPrefix(o.begin, *p.Prefix)
	case p.SeparatedPrefix != "":
		return hasPrefix(o.begin, p.SeparatedPrefix+"/") || o.whole && len(o.begin) == len(p.SeparatedPrefix) && hasPrefix(o.begin, p.SeparatedPrefix)
	default:
		return o.Path != "" && len(o.Path) == len(p.Path) && hasPrefix(o.Path, p.Path)
	}
}
