package main

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// maxAge is the age at which the service ends a connection.
const maxAge = 30 * time.Second

// A limit that no caller reaches, and one that is used up before the measurement.
const rules = `
domain: soak
descriptors:
  - key: caller
    rate_limit: {name: per-caller, unit: minute, requests_per_unit: 1000000}
  - key: greedy
    rate_limit: {name: used-up, unit: day, requests_per_unit: 1}
  - key: route
    value: search
    descriptors:
      - key: caller
        rate_limit: {name: search-per-caller, unit: minute, requests_per_unit: 1000000}
`

const apiKey = "soak-key"

// tiers has one subject with the API key.
func tiers() string {
	return fmt.Sprintf(`
tiers: [only]
default: only
subjects:
  - {id: customer, tier: only, keys: [{sha256: %x}]}
`, sha256.Sum256([]byte(apiKey)))
}

// service is the process under load.
type service struct {
	*edge.RLSServer
	ends []end
}

// An end is an address of the service.
type end struct {
	network, address string
	tls              *tls.Config // nil: plain text
}

// start starts the service.
func start(t process.TB, o options) (*service, error) {
	socket := "unix://" + filepath.Join(edge.SocketDir(t), "grpc.sock")
	// The socket is first: StartRLS checks the health there, without TLS.
	env := map[string]string{
		"SLIDEGATE_GRPC_ADDRESS":            socket + ",127.0.0.1:0",
		"SLIDEGATE_GRPC_MAX_CONNECTION_AGE": maxAge.String(),
	}
	if o.transport != "" {
		env["SLIDEGATE_GRPC_TRANSPORT"] = o.transport
	}
	var client *tls.Config
	if o.tls {
		authority := servers.NewAuthority(t)
		_, env["SLIDEGATE_GRPC_TLS_CERT_FILE"], env["SLIDEGATE_GRPC_TLS_KEY_FILE"] = authority.ServerFiles()
		var err error
		if client, err = authority.ClientConfig(); err != nil {
			return nil, err
		}
		client.ServerName, client.NextProtos = "127.0.0.1", []string{"h2"}
	}
	rls := edge.StartRLS(t, edge.RLSOptions{Binary: o.rls, Rules: rules, Tiers: tiers(), Env: env})
	s := &service{RLSServer: rls}
	for _, address := range rls.GRPCs() {
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			s.ends = append(s.ends, end{network: "unix", address: path})
		} else {
			s.ends = append(s.ends, end{network: "tcp", address: address, tls: client})
		}
	}
	return s, nil
}

// complaints are the warnings and errors that the service has logged.
func (s *service) complaints() []string {
	var all []string
	for _, line := range s.Logs() {
		if level, _ := line["level"].(string); level != "info" && level != "debug" {
			all = append(all, fmt.Sprint("the service has logged: ", line))
		}
	}
	return all
}
