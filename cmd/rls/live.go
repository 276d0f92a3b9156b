package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// liveFlags are for explain --live: they say how to ask the running service.
type liveFlags struct {
	Live        bool
	Address     string
	UntilDenied int
	Timeout     time.Duration
}

func (a *liveFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&a.Live, "live", false, "send the request to the running service as Envoy does, which charges it, and print the answer")
	f.IntVar(&a.UntilDenied, "until-denied", 0, "with --live: send it up to `N` times, until it is denied; exit 1 if it never is")
	f.StringVar(&a.Address, "address", "", "with --live: the `HOST:PORT` of a service on another machine, instead of the service of these settings; with grpc.tls the system must trust its certificate (SSL_CERT_FILE)")
	f.DurationVar(&a.Timeout, "timeout", time.Second, "with --live: how long to wait for an answer, and for a service that cannot be reached yet")
}

// live prints a line for each answer of the running service. A denial is an answer, not a failure.
func (a *explainCmd) live(s loaded) error {
	sent, err := parseDescriptors(a.Descriptor)
	if err != nil {
		return err
	}
	switch {
	case a.Domain == "":
		return usage("--live: name the domain of the request with --domain")
	case a.Rules != "" || a.Tier != "":
		return usage("--rules and --tier: the running service has its own rules and tiers, so --live takes neither")
	case a.Hits > math.MaxUint32:
		return usage("--hits: the protocol of Envoy has at most %d", uint32(math.MaxUint32))
	case a.UntilDenied < 0:
		return usage("--until-denied: expected a number above 0")
	case a.Timeout <= 0:
		return usage("--timeout: expected a duration above 0")
	}
	address, secure, err := a.way(s.GRPC)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	conn, err := dial(address, secure)
	if err != nil {
		return fmt.Errorf("explain: %s: %w", address, err)
	}
	defer conn.Close()
	for range max(a.UntilDenied, 1) {
		denied, err := a.once(conn, sent)
		if silent(err) {
			return fmt.Errorf("explain: nothing listens on %s: start rls there, or name another --address", address)
		}
		if err != nil {
			return fmt.Errorf("explain: %s: %w", address, err)
		}
		if denied {
			return nil
		}
	}
	if a.UntilDenied > 0 {
		return fmt.Errorf("explain: %s denied none of %d requests", address, a.UntilDenied)
	}
	return nil
}

// once sends the request once and prints the answer.
func (a *explainCmd) once(conn *grpc.ClientConn, sent []descriptors.Descriptor) (denied bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout)
	defer cancel()
	r, err := ratelimit.Ask(ctx, conn, a.Domain, sent, uint32(a.Hits))
	if err != nil {
		return false, err
	}
	fmt.Fprintln(&stdout, lineOf(&r))
	return r.Denied, nil
}

// silent reports whether an error of a call says that nothing listens on the address. grpc-go keeps
// only the text of the cause.
func silent(err error) bool {
	text := status.Convert(err).Message()
	return err != nil && (strings.HasSuffix(text, syscall.ECONNREFUSED.Error()+`"`) || strings.HasSuffix(text, syscall.ENOENT.Error()+`"`))
}

// lineOf returns an answer as a line. A denial says how long to wait, as far as that is known.
func lineOf(r *ratelimit.Reply) string {
	code, parts := "OK", r.Limits
	if r.Denied {
		code = "OVER_LIMIT"
	}
	switch {
	case r.Never && r.Rule != "" && len(r.Limits) > 1:
		parts = append(parts, "the cost is above the limit of "+r.Rule)
	case r.Never:
		parts = append(parts, "the cost is above the limit")
	case r.Wait > 0:
		parts = append(parts, "retry after "+wait(r.Wait.Seconds()))
	}
	line := code + "  " + strings.Join(parts, "; ")
	if r.Degraded {
		line += " (degraded)"
	}
	return line
}

// way returns the address and the credentials for calling the service.
func (a *explainCmd) way(s settings.GRPC) (settings.Address, credentials.TransportCredentials, error) {
	if a.Address == "" {
		return way(s)
	}
	address := settings.Address(a.Address)
	if !s.TLS.On() {
		return address, insecure.NewCredentials(), nil
	}
	host, _, err := net.SplitHostPort(a.Address)
	if err != nil {
		return "", nil, usage("--address: %w", err)
	}
	own, err := s.TLS.Config("grpc.tls")
	if err != nil {
		return "", nil, err
	}
	return address, credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, Certificates: own.Certificates}), nil
}
