package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Local returns the address and the credentials for calling a service from its own machine: the first
// of grpc.address, or with TLS the first unix socket in plain text if there is one.
func Local(s settings.GRPC) (address settings.Address, secure credentials.TransportCredentials, err error) {
	address, secure = s.Address[0], insecure.NewCredentials()
	if s.TLS.On() {
		if i := slices.IndexFunc(s.Address, func(a settings.Address) bool { return !s.TLS.Covers(a) }); i >= 0 {
			return s.Address[i], secure, nil
		}
		server, err := s.TLS.Config("grpc.tls")
		if err != nil {
			return "", nil, err
		}
		secure = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12,
			// If clients must present a certificate, rls presents that of the service.
			Certificates: server.Certificates,
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

// Remote returns the credentials for calling a service with these settings on another machine.
func Remote(s settings.GRPC, host string) (credentials.TransportCredentials, error) {
	if !s.TLS.On() {
		return insecure.NewCredentials(), nil
	}
	server, err := s.TLS.Config("grpc.tls")
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, Certificates: server.Certificates}), nil
}

// Dial returns a connection, which grpc-go makes at the first call.
func Dial(address settings.Address, secure credentials.TransportCredentials) (*grpc.ClientConn, error) {
	target := string(address)
	if !address.IsSocket() {
		// With passthrough grpc-go dials the address within the deadline. Its own resolver
		// would ask DNS first, and a container without network would wait for that.
		target = "passthrough:///" + target
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(secure))
}

// NothingListens reports whether an error of a call says that nothing listens on the address. grpc-go
// keeps only the text of the cause.
func NothingListens(err error) bool {
	text := status.Convert(err).Message()
	return err != nil && (strings.HasSuffix(text, syscall.ECONNREFUSED.Error()+`"`) || strings.HasSuffix(text, syscall.ENOENT.Error()+`"`))
}

// A Trial is a request that is sent as Envoy sends it.
type Trial struct {
	Domain  string
	Sent    []descriptors.Descriptor
	Hits    uint32
	Timeout time.Duration // of each answer
}

// shownReplies is how many of the answers [Trial.Run] returns: the last ones.
const shownReplies = 3

// Run sends the request once, or with untilDenied up to so many times, until it is denied. It returns
// the text of the last answers. No denial is an error then.
func (t *Trial) Run(conn *grpc.ClientConn, untilDenied int, text func(*ratelimit.Reply) string) (lines []string, err error) {
	for i := range max(untilDenied, 1) {
		ctx, cancel := context.WithTimeout(context.Background(), t.Timeout)
		r, err := ratelimit.Ask(ctx, conn, t.Domain, t.Sent, t.Hits)
		cancel()
		if err != nil {
			return lines, err
		}
		line := text(&r)
		if untilDenied > 0 {
			line = fmt.Sprintf("%d: %s", i+1, line)
		}
		if len(lines) == shownReplies {
			lines = lines[1:]
		}
		if lines = append(lines, line); r.Denied {
			return lines, nil
		}
	}
	if untilDenied > 0 {
		err = fmt.Errorf("denied none of %d requests", untilDenied)
	}
	return lines, err
}
