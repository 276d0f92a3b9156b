package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// A Guard protects a port from web pages in a browser that can reach the port. It is safe
// for concurrent use.
type Guard struct {
	// Setting is the path of the setting that contains Hosts, for messages.
	Setting string
	// Hosts are the host names that requests may have in Host, in lower case and
	// without a dot at the end. IP addresses and localhost need no entry.
	Hosts []string
	// Log gets a warning for each refused request. Wrap it to sample them. Nil
	// disables the warnings.
	Log *zap.Logger
}

// CheckHost refuses a request with 421 if g does not accept the name in its Host. An
// attacker can point a name of their own at this machine (DNS rebinding). The browser then
// treats this port as a part of the attacker's site and lets its pages read it. A request
// without a Host is accepted, because every browser sends one.
func (g Guard) CheckHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.accepts(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		host := shorten(r.Host)
		g.warn("a request was refused because of its Host; if the name is yours, add it to the setting", zap.String("host", host), zap.String("setting", g.Setting))
		http.Error(w, fmt.Sprintf("This port does not answer to the Host %q. Add the name to %s, or use an IP address or localhost.", host, g.Setting),
			http.StatusMisdirectedRequest)
	})
}

// accepts reports whether g accepts a Host, with or without a port.
func (g Guard) accepts(host string) bool {
	if host == "" {
		return true
	}
	host, ok := hostName(host)
	_, err := netip.ParseAddr(host)
	return ok && (err == nil || host == "localhost" || slices.Contains(g.Hosts, host))
}

// hostName returns the name or address of a Host in lower case, without a port, brackets and a dot
// at the end. ok is false if its port is no number.
func hostName(host string) (name string, ok bool) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return "", false
		}
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), true
}

// CheckOrigin refuses with 403 a request of a page of another origin that may change
// something. Every method except GET, HEAD and OPTIONS may. Only browsers send Origin and
// Sec-Fetch-Site, so other clients are not affected.
func (g Guard) CheckOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(g.refuseOrigin))
	return protection.Handler(next)
}

// CheckEmbedding refuses with 403 a request that a page of another origin sends by itself,
// for example for an image or a frame. Such a request is a GET, but a lookup or a profile
// takes work. A person can still follow a link. CheckEmbedding reads Sec-Fetch-Site, which
// browsers send to localhost and over TLS.
func (g Guard) CheckEmbedding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document" {
			g.refuseOrigin(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g Guard) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	g.warn("a request of a web page of another origin was refused", zap.String("origin", shorten(r.Header.Get("Origin"))), zap.String("path", shorten(r.URL.Path)))
	http.Error(w, "A web page of another origin may not send this request.", http.StatusForbidden)
}

func (g Guard) warn(message string, fields ...zap.Field) {
	if g.Log != nil {
		g.Log.Warn(message, fields...)
	}
}

// maxShown bounds a part of the request in a log line or an answer, in bytes. A host name
// has at most 253.
const maxShown = 256

func shorten(text string) string { return text[:min(len(text), maxShown)] }

// maxRepeated is the length of the longest text of a request that an error repeats, in bytes. A
// longer one can be an API key that was typed in a wrong field.
const maxRepeated = 12

// repeated returns a mistyped text in quotes, or that it is long.
func repeated(text string) string {
	if len(text) > maxRepeated {
		return fmt.Sprintf("(a text of %d bytes)", len(text))
	}
	return strconv.Quote(text)
}
