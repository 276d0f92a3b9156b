package settings

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
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
	minToken      = 16
	maxToken      = 256
	maxTokenName  = 64
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

// parseTokens parses the text of a file.
func parseTokens(file string, data []byte) ([]Token, error) {
	var all []Token
	lines := make(map[[sha256.Size]byte]int)
	for i, line := range bytes.Split(data, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		refuse := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", strict.Quoteless(file), i+1, fmt.Sprintf(format, args...))
		}
		t, problem := readToken(text)
		if problem != "" {
			return nil, refuse("%s", problem)
		}
		if before, ok := lines[t.Digest]; ok {
			return nil, refuse("the token is also on line %d: give each holder another one", before)
		}
		if len(all) == maxTokens {
			return nil, refuse("more than %d tokens", maxTokens)
		}
		if t.Name == "" {
			t.Name = fmt.Sprintf("line %d", i+1)
		}
		lines[t.Digest] = i + 1
		all = append(all, t)
	}
	if all == nil {
		return nil, fmt.Errorf("%s: has no token: write a line such as: read TOKEN", strict.Quoteless(file))
	}
	return all, nil
}

// readToken reads one line. problem is empty if the line has a token.
func readToken(text string) (t Token, problem string) {
	words := strings.Fields(text)
	switch words[0] {
	case "read":
	case "act":
		t.Act = true
	default:
		return t, "a line begins with read or act: read TOKEN, or act TOKEN NAME"
	}
	if len(words) < 2 || len(words) > 3 {
		return t, fmt.Sprintf("a line has two or three words, and this one has %d: read TOKEN, or act TOKEN NAME", len(words))
	}
	token := words[1]
	switch {
	case len(token) < minToken:
		return t, fmt.Sprintf("the token has %d characters, and needs at least %d: make one with openssl rand -hex 32", len(token), minToken)
	case len(token) > maxToken:
		return t, fmt.Sprintf("the token has %d characters, and may have at most %d", len(token), maxToken)
	case strings.ContainsFunc(token, notInToken):
		return t, "the token has a character that a header cannot carry: use letters, digits and -._~+/="
	}
	t.Digest = sha256.Sum256([]byte(token))
	if len(words) == 3 {
		t.Name = words[2]
		if len(t.Name) > maxTokenName || strings.ContainsFunc(t.Name, notInTokenName) {
			return t, fmt.Sprintf("the name after the token may have at most %d letters, digits and -._@", maxTokenName)
		}
	}
	return t, ""
}

const lettersAndDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// notInToken reports whether a token must not hold a character (RFC 6750, section 2.1).
func notInToken(c rune) bool { return !strings.ContainsRune(lettersAndDigits+"-._~+/=", c) }

func notInTokenName(c rune) bool { return !strings.ContainsRune(lettersAndDigits+"-._@", c) }

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

// admin checks who may read the admin port.
func (l *settingsLoader) admin() {
	a := l.settings.Admin
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
