package envoycheck

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	numerator   = regexp.MustCompile(`"numerator"\s+value\s*\{\s*number_value:\s*(\d+)`)
	denominator = regexp.MustCompile(`"denominator"\s+value\s*\{\s*string_value:\s*"(\w+)"`)
)

// fraction returns the value of a runtime key that is a fraction, which Envoy writes as the text of a message.
func (in *Input) fraction(key string) (n float64, of string, ok bool) {
	if in.Live == nil || !strings.HasPrefix(in.Live.Runtime[key], "goo.gle/") && !strings.HasPrefix(in.Live.Runtime[key], "fields") {
		return 0, "", false
	}
	if found := numerator.FindStringSubmatch(in.Live.Runtime[key]); found != nil {
		n, _ = strconv.ParseFloat(found[1], 64) // digits
	}
	if found := denominator.FindStringSubmatch(in.Live.Runtime[key]); found != nil {
		of = found[1]
	}
	return n, of, true
}

// runtime returns the value of a runtime key that is a number.
func (in *Input) runtime(key string) (n uint64, ok bool) {
	if in.Live == nil || key == "" || in.Live.Runtime[key] == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(in.Live.Runtime[key], 10, 64)
	if err != nil {
		in.NotRead("the runtime key %s: %s is no number", key, in.Live.Runtime[key])
	}
	return n, err == nil
}

// proven returns what is known of the routes, as a sentence.
func (in *Input) proven() string {
	limited, hidden := 0, 0
	listeners := make(map[string]bool)
	for _, r := range in.checked() {
		switch {
		case slices.ContainsFunc(r.sends, func(s *sent) bool { return !s.limit.AtEnd && s.limits() }):
			limited++
			listeners[r.manager.Listener.Name] = true
		case len(r.manager.Limits) == 0 && r.context()["domain"]:
			hidden++
		}
	}
	var out []string
	if limited > 0 || hidden == 0 {
		out = append(out, fmt.Sprintf("%s of %s send descriptors that rules of this rls limit.", count(limited, "route"), count(len(listeners), "listener")))
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("%s name a domain for the authorization; Envoy hides which, and the descriptors too.", count(hidden, "route")))
	}
	return strings.Join(out, " ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
