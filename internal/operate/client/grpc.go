package client

import (
	"crypto/tls"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/config/settings"
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
