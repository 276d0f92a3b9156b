package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/internal/text/safetext"
)

// An Instance is the admin port of one process.
type Instance struct {
	Name string // as the operator wrote it
	base string // its URL
}

// A Client calls admin ports. It is safe for concurrent use.
type Client struct {
	Instances []Instance
	Token     string        // empty: none is sent
	Timeout   time.Duration // of each call
}

// New returns a client of the admin ports at addresses, each of which is listed once.
func New(addresses []string, timeout time.Duration) (*Client, error) {
	c := &Client{Timeout: timeout}
	for _, address := range addresses {
		base, err := baseURL(strings.TrimSpace(address))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.Instances, func(i Instance) bool { return i.base == base }) {
			c.Instances = append(c.Instances, Instance{safetext.Text(strings.TrimSpace(address)), base})
		}
	}
	return c, nil
}

// baseURL returns the URL of an admin port from its URL or from the address that it listens on.
func baseURL(address string) (string, error) {
	if u, err := url.Parse(address); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return strings.TrimSuffix(address, "/"), nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.Contains(host, "/") || strings.Contains(port, "/") {
		return "", fmt.Errorf("%q is neither host:port nor a URL such as http://127.0.0.1:6070", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// maxTokenFile bounds a file of tokens, in bytes.
const maxTokenFile = 64 << 10

// ReadToken returns the token of a file, or that of the environment if path is empty. The file has
// the token alone, or lines as admin.token_file; a token that may act is preferred.
func ReadToken(path string) (string, error) {
	if path == "" {
		return checkToken(strings.TrimSpace(os.Getenv(settings.EnvAdminToken)))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err == nil {
		data, err = text.WithoutMark(data)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	var read string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case len(words) == 1:
			return checkToken(words[0])
		case words[0] == "act":
			return checkToken(words[1])
		case words[0] == "read" && read == "":
			read = words[1]
		}
	}
	if read == "" {
		return "", fmt.Errorf("%s has no token; write the token into it, or a line such as act TOKEN", path)
	}
	return checkToken(read)
}

// checkToken refuses what cannot be sent in a header. Its error does not have the token.
func checkToken(token string) (string, error) {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token has a character that is not visible ASCII")
	}
	return token, nil
}

// noRedirects follows no redirect: a token is for the port that it was given to.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// maxAnswer bounds an answer of an admin port, in bytes.
const maxAnswer = 32 << 20

// call sends a value to an instance as JSON, unless it is nil, and reads the answer into out.
func (c *Client) call(ctx context.Context, to Instance, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, to.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := noRedirects.Do(r)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // the URL names the caller that the operator asks about
		}
		return fmt.Errorf("the admin port does not answer: %w; check that rls runs, and --admin or admin.address", err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	if response.StatusCode/100 != 2 {
		return c.refusal(response)
	}
	if response.StatusCode == http.StatusNoContent {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("the admin port: %w", err)
	}
	if len(data) > maxAnswer {
		return fmt.Errorf("the answer of the admin port is above %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer is not the JSON that rls expects (%w); check that --admin or admin.address is the admin port, and that rls has the version of the service", err)
	}
	return nil
}

// A Refusal is an answer of an admin port that is not a success.
type Refusal struct {
	Status int
	text   string
}

func (r *Refusal) Error() string { return r.text }

// maxRefusal bounds the text of a refusal, in bytes.
const maxRefusal = 4 << 10

// refusal returns the reason in an answer that is not a success.
func (c *Client) refusal(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		text = nil // the status says enough
	}
	detail := strings.TrimSpace(string(text))
	var problem struct{ Title, Detail string }
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind == "application/problem+json" && json.Unmarshal(text, &problem) == nil {
		detail = problem.Detail
		if detail == "" {
			detail = problem.Title
		}
	}
	out := "the admin port answers " + safetext.Text(response.Status)
	if detail != "" {
		out += ": " + safetext.Text(detail)
	}
	switch code := response.StatusCode; {
	case code == http.StatusNotFound && problem.Detail == "":
		out = "the admin port answers 404 Not Found; check that --admin or admin.address is the admin port of a version that has this command"
	case code == http.StatusUnauthorized && c.Token == "":
		out = strings.TrimSuffix(out, ".") + "; rls sends one with --token-file or " + settings.EnvAdminToken
	}
	return &Refusal{response.StatusCode, out}
}
