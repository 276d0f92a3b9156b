package main

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
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// adminPorts has the flags for calling the admin ports of the running instances of a service.
type adminPorts struct {
	Admin     []string
	TokenFile string
	Timeout   time.Duration
	JSON      bool
}

// adminHelp describes the admin flags, once for all commands.
const adminHelp = "The admin flags are those of the commands that ask running services by their admin ports. With several addresses in --admin, rls asks all of these instances of the service at once. If one does not answer, rls names it, prints the answers of the others, and exits with 3. " +
	"--json then prints {\"instances\": [{\"admin\": …, \"answer\": …} or {\"admin\": …, \"error\": …}]}, with an answer as one address alone would give it.\n\n" +
	"The admin port may want a token. rls takes it from --token-file or from " + settings.EnvAdminToken + ", not from the command line, where every user of the machine sees it."

// flags adds the flags to a command that waits so long for an answer, unless --timeout says otherwise.
// They are a group of their own in its help.
func (a *adminPorts) flags(cmd *cobra.Command, wait time.Duration) {
	f := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	f.StringSliceVar(&a.Admin, "admin", nil, "`ADDRESSES` of the admin ports, as in admin.address, or their URLs, separated by commas (default admin.address of the settings)")
	f.DurationVar(&a.Timeout, "timeout", wait, "how long to wait for an answer")
	f.BoolVar(&a.JSON, "json", false, "print JSON")
	f.StringVar(&a.TokenFile, "token-file", "", "a `FILE` with the token for the admin port, alone or as in admin.token_file (default "+settings.EnvAdminToken+", then admin.token_file of the settings)")
	f.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{adminFlag: nil} })
	cmd.Flags().AddFlagSet(f)
}

// adminFlag is the annotation of the flags of adminPorts.
const adminFlag = "admin"

// flagsOf returns the flags of a command that are in the group of the admin flags, or the others.
func flagsOf(flags *pflag.FlagSet, ofAdmin bool) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Annotations[adminFlag]; is == ofAdmin {
			out.AddFlag(f)
		}
	})
	return out
}

// How long commands wait for an answer. A reset goes on for half a minute in a large store.
const (
	waitToRead  = 10 * time.Second
	waitToReset = 45 * time.Second
)

// maxInstances bounds the addresses of --admin.
const maxInstances = 256

// An instance is the admin port of one process.
type instance struct {
	name string // as the operator wrote it
	base string // its URL
}

// A caller calls admin ports. It is safe for concurrent use.
type caller struct {
	instances []instance
	token     string
	timeout   time.Duration
}

// caller returns the instances that the flags name.
func (a *adminPorts) caller(c *cli) (*caller, error) {
	if a.Timeout <= 0 {
		return nil, usage("--timeout: expected a duration above 0")
	}
	if len(a.Admin) > maxInstances {
		return nil, usage("--admin: %d addresses are more than %d", len(a.Admin), maxInstances)
	}
	out := &caller{timeout: a.Timeout}
	addresses, tokenFile := a.Admin, a.TokenFile
	var own bool
	if len(addresses) == 0 {
		s, err := c.load()
		if err != nil {
			return nil, invalid(err)
		}
		if s.Admin.Address == "" {
			return nil, usage("admin.address is off in these settings; name the admin port of the service with --admin")
		}
		if s.DropIn.Pages {
			return nil, usage("in place of envoyproxy/ratelimit the admin port has only the pages of that service, and no admin API")
		}
		addresses = []string{string(s.Admin.Address)}
		if tokenFile == "" && os.Getenv(settings.EnvAdminToken) == "" {
			tokenFile, own = s.Admin.TokenFile, true
		}
	}
	for _, address := range addresses {
		base, err := adminURL(strings.TrimSpace(address))
		if err != nil {
			return nil, usage("--admin: %w", err)
		}
		if !slices.ContainsFunc(out.instances, func(i instance) bool { return i.base == base }) {
			out.instances = append(out.instances, instance{safetext.Text(strings.TrimSpace(address)), base})
		}
	}
	var err error
	switch out.token, err = readToken(tokenFile); {
	case err != nil && own:
		return nil, usage("admin.token_file: %w; name a file with your token in --token-file, or set %s", err, settings.EnvAdminToken)
	case err != nil:
		return nil, usage("--token-file: %w", err)
	}
	return out, nil
}

// maxTokenFile bounds a file of tokens, in bytes.
const maxTokenFile = 64 << 10

// readToken returns the token of a file, or that of the environment if there is no file. The
// file has the token alone, or lines as admin.token_file; a token that may act is preferred.
func readToken(path string) (string, error) {
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

// statusError is an answer of an admin port that is a refusal.
type statusError struct {
	code int
	text string
}

func (s *statusError) Error() string { return s.text }

// client follows no redirect: a token is for the port that it was given to.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// maxRefusal bounds the text of a refusal, in bytes.
const maxRefusal = 4 << 10

// refusal returns what an answer that is not a success says.
func (c *caller) refusal(response *http.Response) error {
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
	case code == http.StatusUnauthorized && c.token == "":
		out = strings.TrimSuffix(out, ".") + "; rls sends one with --token-file or " + settings.EnvAdminToken
	}
	return &statusError{response.StatusCode, out}
}

// maxAnswer bounds an answer of an admin port, in bytes.
const maxAnswer = 32 << 20

// call calls an instance and reads its answer into out.
func (c *caller) call(ctx context.Context, to instance, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := client.Do(r)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // the URL has what was asked for
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

// An answer is what one instance answered.
type answer[T any] struct {
	from  instance
	value *T
	err   error
}

// askAll asks instances at once. The answers are in their order.
func askAll[T any](ctx context.Context, instances []instance, ask func(context.Context, instance) (*T, error)) []answer[T] {
	all := make([]answer[T], len(instances))
	var wait sync.WaitGroup
	for i, to := range instances {
		wait.Go(func() {
			value, err := ask(ctx, to)
			all[i] = answer[T]{to, value, err}
		})
	}
	wait.Wait()
	return all
}

// answered returns the answers that are no errors.
func answered[T any](all []answer[T]) (good []answer[T]) {
	for _, a := range all {
		if a.err == nil {
			good = append(good, a)
		}
	}
	return good
}

// failed returns the error of a command that asked instances: nil if all answered, a failure
// if none did, and otherwise one whose exit code says that the output is not complete.
func failed[T any](all []answer[T]) error {
	var lines []string
	for _, a := range all {
		if a.err != nil {
			lines = append(lines, fmt.Sprintf("%s: %v", a.from.name, a.err))
		}
	}
	text := errors.New(strings.Join(lines, "\n"))
	switch len(lines) {
	case 0:
		return nil
	case len(all):
		return text
	default:
		return partial{fmt.Errorf("%d of %d instances did not answer:\n%w", len(lines), len(all), text)}
	}
}

// printJSON prints the answer of one address, or those of several.
func printJSON[T any](one bool, all []answer[T]) error {
	if one {
		if all[0].err != nil {
			return nil // the error is printed on standard error
		}
		return encode(all[0].value)
	}
	type part struct {
		Admin  string `json:"admin"`
		Answer *T     `json:"answer,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	out := struct {
		Instances []part `json:"instances"`
	}{[]part{}}
	for _, a := range all {
		p := part{Admin: a.from.name, Answer: a.value}
		if a.err != nil {
			p.Error, p.Answer = a.err.Error(), nil
		}
		out.Instances = append(out.Instances, p)
	}
	return encode(out)
}

func encode(v any) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprint(&stdout, terminal.JSON(b.Bytes()))
	return err
}

// adminURL returns the URL of an admin port from its URL or from the address that it listens
// on.
func adminURL(address string) (string, error) {
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
