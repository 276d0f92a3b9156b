package settings

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// A Token is one line of admin.token_file. It has the digest of the token, not the token.
type Token struct {
	Digest [sha256.Size]byte
	// Act is true if the token allows writes too.
	Act bool
	// Name names the holder in the audit log. Without a name in the file it is the line.
	Name string
}

// Bounds of a file of tokens.
const (
	maxTokens     = 1000
	maxTokensFile = 1 << 20
)

// ReadTokens reads a file with a line for each token: "read TOKEN" or "act TOKEN", and a name
// of the holder if wanted. Empty lines and lines that begin with # are ignored. An error names
// the file and the line, and repeats no text of the file. ReadTokens is safe for concurrent use.
func ReadTokens(file string) ([]Token, error) {
	data, err := files.Read(file, maxTokensFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strict.Quoteless(file), err)
	}
	return parseTokens(file, data)
}

func parseTokens(file string, data []byte) (all []Token, err error) {
	for i, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		t, problem := readToken(words)
		switch {
		case problem != "":
		case slices.ContainsFunc(all, func(o Token) bool { return o.Digest == t.Digest }):
			problem = "the token is also on a line above: give each holder another one"
		case len(all) == maxTokens:
			problem = fmt.Sprintf("more than %d tokens", maxTokens)
		}
		if problem != "" {
			return nil, fmt.Errorf("%s:%d: %s", strict.Quoteless(file), i+1, problem)
		}
		t.Name = cmp.Or(t.Name, fmt.Sprintf("line %d", i+1))
		all = append(all, t)
	}
	if all == nil {
		return nil, fmt.Errorf("%s: has no token: write a line such as: read TOKEN", strict.Quoteless(file))
	}
	return all, nil
}

var (
	validToken = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{32,256}$`) // RFC 6750, section 2.1
	validName  = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)
)

// readToken reads the words of one line. problem is empty if they are a token.
func readToken(words []string) (t Token, problem string) {
	if words[0] != "read" && words[0] != "act" || len(words) < 2 || len(words) > 3 {
		return t, "a line has two or three words: read TOKEN, or act TOKEN NAME"
	}
	if !validToken.MatchString(words[1]) {
		return t, "a token has 32 to 256 letters, digits and -._~+/=: make one with openssl rand -hex 32"
	}
	t = Token{Digest: sha256.Sum256([]byte(words[1])), Act: words[0] == "act"}
	if len(words) == 3 {
		if t.Name = words[2]; !validName.MatchString(t.Name) {
			return t, "the name after the token has at most 64 letters, digits and -._@"
		}
	}
	return t, ""
}

// OnLoopback reports whether only this machine can reach a listener on the address: its host
// is localhost or a loopback address.
func (a Address) OnLoopback() bool {
	host, _, err := net.SplitHostPort(string(a))
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (l *settingsLoader) admin() {
	l.secret("admin.peers_key", &l.settings.Admin.PeersKey, l.settings.Admin.PeersKeyFile, 2*minSecret)
	a := l.settings.Admin
	if l.settings.Store.Type != StoreRedis {
		l.refuse("admin", []string{"peers_key_file", "peers_key"}, "instances know each other by their Redis: set store.type to redis")
	}
	if a.TokenFile != "" {
		if _, err := ReadTokens(a.TokenFile); err != nil {
			l.problem("admin.token_file", "%s", err)
		}
		return
	}
	if a.Address != "" && !l.settings.DropIn.Pages && a.Address.check(false) == "" && !a.Address.OnLoopback() {
		l.problem("admin.address", "%s is not on loopback, and its pages show customers and can reset their limits: set admin.token_file, or listen on 127.0.0.1 and let Prometheus scrape metrics.address",
			strict.Quote(string(a.Address)))
	}
}
