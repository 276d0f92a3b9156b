package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// invalid returns an error with each problem on a line of its own, so that editors find the
// places. A problem that several errors have is in it once.
func invalid(errs ...error) error {
	paint := coloursOf(os.Stderr)
	var lines []string
	told := make(map[strict.Problem]bool)
	for _, p := range problems(errs...) {
		if !told[p] {
			told[p] = true
			lines = append(lines, problemLine(paint, p))
		}
	}
	return fmt.Errorf("the configuration is not valid:\n%s", strings.Join(lines, "\n"))
}

// problems returns the problems in errs. An error without a place becomes a problem that has
// only a message.
func problems(errs ...error) (all []strict.Problem) {
	for _, err := range errs {
		if ps := strict.Problems(nil); errors.As(err, &ps) {
			all = append(all, ps...)
		} else if err != nil {
			all = append(all, strict.Problem{Message: err.Error()})
		}
	}
	return all
}

// problemLine returns a problem as text, with its place in bold.
func problemLine(paint terminal.Colours, p strict.Problem) string {
	message := safetext.Text(p.Message)
	p.Message = ""
	return paint.Bold(p.String()) + message
}

// maxKeyBytes bounds a line with an API key. Headers are far smaller.
const maxKeyBytes = 1 << 20

func digestOf(c *cli) *cobra.Command {
	cmd := leaf("digest", "Read API keys from standard input, one a line, and print their digests for a tiers file.",
		func() error { return printDigests(c) })
	cmd.Long = cmd.Short + " The key of the line 'Bearer K' is K, and so is that of K between white space."
	return cmd
}

// printDigests reads keys from standard input, so that they stay out of the shell's history and the
// process list. For each line it prints the digest that a request with this text in a header
// gets. If that is not the digest of the whole line, it says so on standard error.
func printDigests(c *cli) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	secrets := s.NewSecrets(s.Secrets.Key)
	read := false
	for line, text := range keyLines(&err) {
		key := secrets.Key(text)
		if key == "" {
			continue
		}
		read = true
		fmt.Fprintln(&stdout, secrets.Digest(key))
		if key != text {
			fmt.Fprintf(os.Stderr, "rls: line %d: the digest is of the API key in the line, not of the whole line; a key ends at white space and does not include a scheme such as Bearer\n", line)
		}
	}
	if err != nil {
		return fmt.Errorf("reading keys from standard input: %w", err)
	}
	if !read {
		return usage(`digest: standard input holds no API key; write one a line: printf '%%s\n' "$KEY" | rls digest`)
	}
	return nil
}

// keyLines iterates over the lines of standard input, with numbers from 1. It sets err if standard
// input cannot be read.
func keyLines(err *error) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, maxKeyBytes)
		for line := 1; in.Scan(); line++ {
			key := in.Bytes()
			if line == 1 {
				if key, *err = text.WithoutMark(key); *err != nil {
					return
				}
			}
			if !yield(line, string(key)) {
				return
			}
		}
		*err = in.Err()
	}
}

// keyStdin returns the first line of standard input that has an API key, for --key-stdin of a command.
func keyStdin(secrets *tier.Secrets, command string) (line string, err error) {
	for _, text := range keyLines(&err) {
		if secrets.Key(text) != "" {
			return text, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading the API key from standard input: %w", err)
	}
	return "", usage(`--key-stdin: standard input holds no API key: printf '%%s\n' "$KEY" | rls %s --key-stdin`, command)
}

type healthcheckCmd struct {
	Timeout time.Duration
}

func healthcheck(c *cli) *cobra.Command {
	var h healthcheckCmd
	cmd := leaf("healthcheck", "Check that the service of these settings serves; exit 1 if it does not.", func() error { return h.Run(c) })
	cmd.Flags().DurationVar(&h.Timeout, "timeout", time.Second, "how long to wait for the answer")
	return cmd
}

// Run calls the gRPC health service at the first address of grpc.address. With TLS it prefers
// the first unix socket in plain text, if there is one.
func (h healthcheckCmd) Run(c *cli) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	address, secure, err := way(s.GRPC)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	conn, err := dial(address, secure)
	if err != nil {
		return fmt.Errorf("healthcheck: %s: %w", address, err)
	}
	defer conn.Close()
	out, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	cause := status.Convert(err)
	switch reason := cmp.Or(cause.Message(), cause.Code().String()); {
	case err == nil:
	case silent(err):
		return fmt.Errorf("healthcheck: nothing listens on %s: start rls, or set grpc.address", address)
	case cause.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("healthcheck: %s: no answer within %v", address, h.Timeout)
	case s.GRPC.TLS.ClientCAFile != "" && s.GRPC.TLS.Covers(address):
		// A refused certificate often looks like a broken pipe: in TLS 1.3 the client writes
		// before it learns of the refusal.
		return fmt.Errorf("healthcheck: %s: %s (%s, or grpc.address must have a unix socket in plain text)", address, reason, forClients(s.GRPC.TLS))
	default:
		return fmt.Errorf("healthcheck: %s: %s", address, reason)
	}
	if out.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("healthcheck: %s answers %s", address, out.GetStatus())
	}
	return nil
}

// dial returns a connection, which grpc-go makes at the first call.
func dial(address settings.Address, secure credentials.TransportCredentials) (*grpc.ClientConn, error) {
	target := string(address)
	if !address.IsSocket() {
		// With passthrough grpc-go dials the address within the deadline. Its own resolver
		// would ask DNS first, and a container without network would wait for that.
		target = "passthrough:///" + target
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(secure))
}

// forClients says what the service's own certificate needs so that the service accepts it from
// a client.
func forClients(t settings.ServerTLS) string {
	text := "the certificate of grpc.tls.cert_file must also be valid for clients"
	if t.ClientSAN != "" {
		text += " and have the name grpc.tls.client_san"
	}
	return text
}

// way returns the address and the credentials for calling the service from its own machine.
func way(s settings.GRPC) (address settings.Address, secure credentials.TransportCredentials, err error) {
	address, secure = s.Address[0], insecure.NewCredentials()
	if s.TLS.On() {
		if i := slices.IndexFunc(s.Address, func(a settings.Address) bool { return !s.TLS.Covers(a) }); i >= 0 {
			return s.Address[i], secure, nil
		}
		own, err := s.TLS.Config("grpc.tls")
		if err != nil {
			return "", nil, err
		}
		secure = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12,
			// If clients must present a certificate, rls presents the service's own.
			Certificates: own.Certificates,
			// The certificate has the names that Envoy uses, not that of this machine. A
			// health check sends no secret, so it may reach another server.
			InsecureSkipVerify: true, //nolint:gosec // see above
		})
	}
	if strings.HasPrefix(string(address), ":") {
		address = "127.0.0.1" + address
	}
	return address, secure, nil
}
