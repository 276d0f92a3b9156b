package compat

import (
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/text/httpfield"
)

// always gives the settings of a drop-in that no variable says.
func (r *reader) always() {
	d := &r.dropIn
	d.Answers, d.UsageReports, d.Pages = true, true, true
	d.Files = files.Which{All: true}
	// If the operator names a file of tiers, its tiers count.
	if r.origin("tiers.path") == "" {
		const path = "tiers.source"
		by := r.origin(path)
		r.all = append(r.all, Value{Setting: path, Text: settings.TiersNone, By: by})
		if by == "" {
			r.dropIn.Given = append(r.dropIn.Given, settings.Given{Path: path, Text: settings.TiersNone})
		}
	}
}

func (r *reader) address(path, host, port string) {
	if text := r.hostPort(path, host, port); text != "" {
		r.give(path, text, host, port)
	}
}

// hostPort returns host:port of two variables, or nothing if the host is refused. path is the
// setting that they say.
func (r *reader) hostPort(path, host, port string) string {
	if r.by[host].row.Value == strict.Hidden && r.origin(path) == "" {
		r.refuse(host, "expected a host name or an IP address")
		return ""
	}
	n := r.by[port].number
	if (n < 0 || n > math.MaxUint16) && r.origin(path) == "" {
		r.refuse(port, "%d is not a port: the highest is %d", n, math.MaxUint16)
	}
	return net.JoinHostPort(r.text(host), strconv.FormatInt(n, 10))
}

func (r *reader) listeners() {
	r.address("http.address", "HOST", "PORT")
	r.address("admin.address", "DEBUG_HOST", "DEBUG_PORT")
	if socket := r.text("GRPC_UDS"); socket != "" {
		// The working directory is known, or the path is refused as a relative one.
		if absolute, err := filepath.Abs(socket); err == nil {
			socket = absolute
		}
		r.give("grpc.address", "unix://"+socket, "GRPC_UDS")
		r.noEffect("GRPC_UDS is set", "GRPC_HOST", "GRPC_PORT")
	} else {
		r.address("grpc.address", "GRPC_HOST", "GRPC_PORT")
	}
	r.give("grpc.max_connection_age", r.by["GRPC_MAX_CONNECTION_AGE"].period.String(), "GRPC_MAX_CONNECTION_AGE")
	r.serverTLS()
	r.health()
}

func (r *reader) serverTLS() {
	if !r.truth("GRPC_SERVER_USE_TLS") {
		r.note("GRPC_SERVER_USE_TLS", "no TLS")
		r.noEffect("GRPC_SERVER_USE_TLS is not true", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN")
		return
	}
	const cert, key = "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"
	for _, file := range []struct{ name, path string }{{cert, "grpc.tls.cert_file"}, {key, "grpc.tls.key_file"}} {
		if r.text(file.name) == "" && r.origin(file.path) == "" {
			r.refuse(file.name, "is needed, because GRPC_SERVER_USE_TLS is true")
		}
	}
	if r.by[cert].bad || r.by[key].bad {
		return
	}
	r.giveText("grpc.tls.cert_file", cert)
	r.giveText("grpc.tls.key_file", key)
	if r.text("GRPC_UDS") != "" {
		drop(r, &r.dropIn.SocketTLS, true, "dropin.unix_sockets_tls", "GRPC_SERVER_USE_TLS")
	}
	r.note("GRPC_SERVER_USE_TLS", "TLS")
	r.giveText("grpc.tls.client_ca_file", "GRPC_CLIENT_TLS_CACERT")
	if r.text("GRPC_CLIENT_TLS_CACERT") != "" {
		r.note("GRPC_CLIENT_TLS_CACERT", "certificates of the system's CAs are not accepted")
	} else if r.origin("grpc.tls.client_ca_file") == "" {
		r.ignore("GRPC_CLIENT_TLS_SAN", "clients present no certificate, because GRPC_CLIENT_TLS_CACERT is not set; envoyproxy/ratelimit checks no name then either")
		return
	}
	r.giveText("grpc.tls.client_san", "GRPC_CLIENT_TLS_SAN")
}

func (r *reader) health() {
	const rules, store = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"
	drop(r, &r.dropIn.NeedsRules, r.truth(rules), "dropin.healthy.rules", rules)
	if r.inMemory() {
		r.noEffect(memoryStore, store)
		return
	}
	drop(r, &r.dropIn.NeedsStore, r.truth(store), "dropin.healthy.store", store)
}

// logLevels are the levels of envoyproxy/ratelimit (logrus).
var logLevels = map[string]string{
	"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug",
}

func (r *reader) logs() {
	if level, ok := logLevels[strings.ToLower(r.text("LOG_LEVEL"))]; ok {
		r.give("log.level", level, "LOG_LEVEL")
	} else if r.origin("log.level") == "" {
		r.refuse("LOG_LEVEL", "%s", strict.NotOneOf(r.text("LOG_LEVEL"), []string{"panic", "fatal", "error", "warn", "info", "debug", "trace"}))
	}
	format := "console"
	if strings.EqualFold(r.text("LOG_FORMAT"), "json") {
		format = "reference"
	}
	r.give("log.format", format, "LOG_FORMAT")
}

func (r *reader) headers() {
	d := &r.dropIn.Headers
	names := []struct {
		name, path string
		to         *string
	}{
		{"LIMIT_LIMIT_HEADER", "dropin.headers.limit", &d.Limit},
		{"LIMIT_REMAINING_HEADER", "dropin.headers.remaining", &d.Remaining},
		{"LIMIT_RESET_HEADER", "dropin.headers.reset", &d.Reset},
	}
	const enabled = "LIMIT_RESPONSE_HEADERS_ENABLED"
	if !r.truth(enabled) {
		r.give("headers.styles", "", enabled)
		for _, n := range names {
			r.noEffect(enabled+" is not true", n.name)
		}
		return
	}
	r.give("headers.styles", rules.StyleReference, enabled)
	seen := make(map[string]bool)
	for _, n := range names {
		name := r.text(n.name)
		switch lower := strings.ToLower(name); {
		case !httpfield.ValidName(name) || len(name) > 100:
			r.refuse(n.name, "%s is not the name of a header: write up to 100 letters, digits and -", strict.Quote(name))
		case slices.Contains(notForUs, lower):
			r.refuse(n.name, "the header %s has another meaning: write another name", lower)
		case seen[lower]:
			r.refuse(n.name, "%s is the name of two headers: upper and lower case are the same", strict.Quote(name))
		default:
			seen[lower] = true
		}
		drop(r, n.to, name, n.path, n.name)
	}
}

// notForUs are headers of answers with another meaning. Some of them would break the answer.
var notForUs = []string{
	"retry-after", "retry-after-ms", "x-should-retry", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive",
	"proxy-connection", "upgrade", "te", "trailer", "host", "date", "location", "set-cookie", "www-authenticate",
}
