package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
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

// address gives a setting host:port of two variables.
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

// listeners reads the ports, their TLS, and health.
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

// serverTLS reads TLS of the gRPC port.
func (r *reader) serverTLS() {
	if !r.truth("GRPC_SERVER_USE_TLS") {
		r.note("GRPC_SERVER_USE_TLS", "no TLS")
		r.noEffect("GRPC_SERVER_USE_TLS is not true", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN")
		return
	}
	const cert, key = "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"
	for _, own := range []struct{ name, path string }{{cert, "grpc.tls.cert_file"}, {key, "grpc.tls.key_file"}} {
		if r.text(own.name) == "" && r.origin(own.path) == "" {
			r.refuse(own.name, "is needed, because GRPC_SERVER_USE_TLS is true")
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

// health reads when /healthcheck is 500.
func (r *reader) health() {
	const rules, store = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"
	drop(r, &r.dropIn.NeedsRules, r.truth(rules), "dropin.healthy.rules", rules)
	if r.inMemory() {
		r.noEffect(memoryStore, store)
		return
	}
	drop(r, &r.dropIn.NeedsStore, r.truth(store), "dropin.healthy.store", store)
}

// logLevels are those of the reference (logrus).
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

// The values of CONFIG_TYPE.
const (
	configFile = "FILE"
	configXDS  = "GRPC_XDS_SOTW"
)

// rules reads where rules are, and what applies to all of them.
func (r *reader) rules() {
	r.giveTruth("rules.merge_domains", r.truth("MERGE_DOMAIN_CONFIG"), "MERGE_DOMAIN_CONFIG")
	r.giveTruth("rules.shadow_mode", r.truth("SHADOW_MODE"), "SHADOW_MODE")
	drop(r, &r.dropIn.QuotaMode, r.truth("QUOTA_MODE"), "dropin.rules.quota_mode", "QUOTA_MODE")
	drop(r, &r.dropIn.EchoRequest, r.truth("RESPONSE_DYNAMIC_METADATA"), "dropin.metadata.request", "RESPONSE_DYNAMIC_METADATA")

	source := r.own.Settings.Rules.Source
	kind := r.text("CONFIG_TYPE")
	if r.origin("rules.source") == "" {
		switch kind {
		case configFile:
			source = settings.RulesFiles
		case configXDS:
			source = settings.RulesXDS
		default:
			r.refuse("CONFIG_TYPE", "%s", strict.NotOneOf(kind, []string{configFile, configXDS}))
			return
		}
	}
	r.give("rules.source", source, "CONFIG_TYPE")
	if source == settings.RulesXDS {
		r.noEffect("rules come from an xDS server", namesOf(fileVariables)...)
		r.xds()
		return
	}
	r.noEffect("rules come from files", slices.DeleteFunc(namesOf(xdsVariables), func(n string) bool { return n == "CONFIG_TYPE" })...)
	if r.truth("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		r.ignore("FORCE_START_WITHOUT_INITIAL_CONFIG", "rls does not start with a broken rules file")
	}
	r.noEffect("rules come from files", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	r.files()
}

func namesOf(variables []variable) (names []string) {
	for i := range variables {
		if variables[i].why == "" {
			names = append(names, variables[i].name)
		}
	}
	return names
}

// files reads the directory of rules. The reference keeps the files of ROOT/SUBDIRECTORY whose
// paths begin with APPDIRECTORY if it watches the root, and otherwise all files of
// ROOT/SUBDIRECTORY/APPDIRECTORY.
func (r *reader) files() {
	names := []string{"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT"}
	which := &r.dropIn.Files
	if by := r.origin("rules.path"); by != "" {
		*which = settings.Default().DropIn.Files
		r.noEffect(by+" says where the rules are", append(names, "RUNTIME_IGNOREDOTFILES")...)
		return
	}
	drop(r, &which.IgnoreDotFiles, r.truth("RUNTIME_IGNOREDOTFILES"), "dropin.rules.ignore_dot_files", "RUNTIME_IGNOREDOTFILES")
	root, sub, app := r.text(names[0]), r.text(names[1]), r.text(names[2])
	const why = "envoyproxy/ratelimit has no rules then, and lets every request pass: set it, for example RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit for /data/ratelimit/config"
	watch := r.truth("RUNTIME_WATCH_ROOT")
	switch {
	case root == "" && (watch || sub == ""):
		r.refuse(names[0], "is empty; %s", why)
	case sub == "" && watch:
		r.refuse(names[1], "is not set, and RUNTIME_WATCH_ROOT is not false; %s", why)
	case app == "":
		r.refuse(names[2], "is empty; %s", why)
	case r.by[names[3]].bad:
	case watch:
		if path := filepath.Join(root, sub); r.exists(path) {
			r.give("rules.path", path, names[0], names[1], names[3])
			r.prefix(app, names[2], names[3])
		}
	default:
		if path := filepath.Join(root, sub, app); r.exists(path) {
			r.give("rules.path", path, names...)
		}
	}
	r.note(names[3], "rls always notices changes")
}

// prefix takes the beginning of the paths of rules.
func (r *reader) prefix(app, name string, others ...string) {
	if strings.Contains(app, "/") || strings.HasSuffix(app, ".") || strings.ContainsFunc(app, unicode.IsControl) {
		r.refuse(name, "%s is not the name of a directory: write it without / and a dot at the end", strict.Quote(app))
	}
	drop(r, &r.dropIn.Files.Prefix, app, "dropin.rules.prefix", append([]string{name}, others...)...)
}

// exists refuses a path of rules that does not exist.
func (r *reader) exists(path string) bool {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		r.refuse("RUNTIME_ROOT", "%s does not exist; the path is RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and, if RUNTIME_WATCH_ROOT is false, RUNTIME_APPDIRECTORY", strict.Quote(path))
		return false
	}
	return true
}

// xds reads how to get rules from an xDS server.
func (r *reader) xds() {
	drop(r, &r.dropIn.WithoutRules, r.truth("FORCE_START_WITHOUT_INITIAL_CONFIG"), "dropin.xds.without_rules", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	r.give("rules.xds.node_id", r.text("CONFIG_GRPC_XDS_NODE_ID"), "CONFIG_GRPC_XDS_NODE_ID")
	address := r.text("CONFIG_GRPC_XDS_SERVER_URL")
	for _, scheme := range []string{"dns:///", "passthrough:///", "dns:"} {
		if rest, ok := strings.CutPrefix(address, scheme); ok {
			address = rest
			break
		}
	}
	if v := r.by["CONFIG_GRPC_XDS_SERVER_URL"]; show(v.variable, address) == strict.Hidden {
		r.refuse(v.name, "expected host:port")
		r.give("rules.xds.address", v.def) // an empty one would be a second problem
	} else {
		r.xdsAddress(address, v.name)
	}
	r.nodeMetadata()
	r.xdsHeaders()
	files := []string{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"}
	if !r.truth(xdsUseTLS) {
		r.noEffect(xdsUseTLS+" is not true", append(files, xdsServerSAN)...)
		return
	}
	r.clientTLS("rules.xds.tls", files[0], files[1], files[2])
}

// The variables of TLS with the xDS server.
const xdsUseTLS, xdsServerSAN = "CONFIG_GRPC_XDS_SERVER_USE_TLS", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"

// xdsAddress gives the address of the xDS server, with its TLS.
func (r *reader) xdsAddress(address, name string) {
	if !r.truth(xdsUseTLS) {
		r.give("rules.xds.address", address, name, xdsUseTLS)
		return
	}
	address = "grpcs://" + address
	from := []string{name, xdsUseTLS}
	if san := r.text(xdsServerSAN); san != "" {
		address, from = address+"?sni="+url.QueryEscape(san), append(from, xdsServerSAN)
	}
	r.give("rules.xds.address", address, from...)
}

// nodeMetadata reads the metadata of the node. The reference drops parts without =.
func (r *reader) nodeMetadata() {
	const name = "CONFIG_GRPC_XDS_NODE_METADATA"
	var items []string
	dropped := 0
	for item := range strings.SplitSeq(r.text(name), ",") {
		if strings.Contains(item, "=") {
			items = append(items, item)
		} else if item != "" {
			dropped++
		}
	}
	if dropped > 0 {
		r.ignore(name, fmt.Sprintf("%d parts have no =, and envoyproxy/ratelimit drops them too", dropped))
	}
	if len(items) > 0 {
		drop(r, &r.dropIn.NodeMetadata, items, "dropin.xds.node_metadata", name)
	}
}

// metadataName matches the names of gRPC metadata in lower case.
var metadataName = regexp.MustCompile(`^[0-9a-z_.-]+$`)

// xdsHeaders reads the headers of requests to the xDS server. A message repeats no part of
// them: a mistake may put the secret before the colon.
func (r *reader) xdsHeaders() {
	headers := r.by["CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"]
	var all []settings.Secret
	for i, p := range headers.pairs {
		name := strings.ToLower(p[0])
		reserved := strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") || slices.Contains([]string{"content-type", "user-agent", "te", "host", "connection"}, name)
		if !metadataName.MatchString(name) || reserved || strings.ContainsFunc(p[1], func(c rune) bool { return c < ' ' || c > '~' }) {
			r.refuse(headers.name, "header %d is not the name of a header that gRPC leaves to others, and a value in printable ASCII", i+1)
			return
		}
		all = append(all, settings.Secret(p[0]+"="+p[1]))
	}
	if len(all) > 0 {
		drop(r, &r.dropIn.XDSHeaders, all, "dropin.xds.headers", headers.name)
	}
}

// clientTLS gives the files of a connection that rls makes. The reference uses a certificate
// only together with its key, and adds the CA to those of the system.
func (r *reader) clientTLS(section, cert, key, ca string) {
	switch {
	case r.text(cert) != "" && r.text(key) != "":
		r.giveText(section+".cert_file", cert)
		r.giveText(section+".key_file", key)
	case r.text(cert) != "" && r.origin(section+".key_file") == "":
		r.ignore(cert, key+" is not set; envoyproxy/ratelimit presents no certificate then either")
	case r.text(key) != "" && r.origin(section+".cert_file") == "":
		r.ignore(key, cert+" is not set; envoyproxy/ratelimit presents no certificate then either")
	default:
		r.giveText(section+".cert_file", cert)
		r.giveText(section+".key_file", key)
	}
	r.giveText(section+".ca_file", ca)
}

// headers reads which headers are on answers.
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
		case !httpguts.ValidHeaderFieldName(name) || len(name) > 100:
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
	"retry-after", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive",
	"proxy-connection", "upgrade", "te", "trailer", "host", "date", "location", "set-cookie", "www-authenticate",
}

// metrics reads where the metrics of the reference go.
func (r *reader) metrics() {
	const (
		statsd, host, port, protocol, interval = "USE_STATSD", "STATSD_HOST", "STATSD_PORT", "STATSD_PROTOCOL", "STATS_FLUSH_INTERVAL"
		prometheus, tags, dog, off             = "USE_PROMETHEUS", "EXTRA_TAGS", "USE_DOG_STATSD", "DISABLE_STATS"
	)
	r.share(&r.dropIn.NearLimit, "dropin.near_limit_ratio", "NEAR_LIMIT_RATIO")
	toStatsd := []string{host, port, protocol, interval}
	toPrometheus := []string{"PROMETHEUS_ADDR", "PROMETHEUS_PATH", "PROMETHEUS_MAPPER_YAML", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"}
	if r.truth(off) {
		r.note(off, "the metrics of envoyproxy/ratelimit are off")
		r.noEffect(off+" is true", slices.Concat(toStatsd, toPrometheus, []string{statsd, prometheus, tags, dog})...)
		return
	}
	r.note(off, "the metrics are not off")
	r.dogStatsd(dog)

	switch {
	// The default of USE_STATSD is true. Without a server the reference tries one for ever.
	case r.truth(statsd) && (r.isSet(statsd) || r.isSet(host)):
		d := &r.dropIn.Statsd
		drop(r, &d.Address, r.hostPort("", host, port), "dropin.statsd.address", host, port, statsd)
		if p := r.text(protocol); p != "tcp" && p != "udp" {
			r.refuse(protocol, "%s", strict.NotOneOf(p, []string{"tcp", "udp"}))
		}
		drop(r, &d.Protocol, r.text(protocol), "dropin.statsd.protocol", protocol)
		if every := r.by[interval].period; every < time.Millisecond || every > time.Hour {
			r.refuse(interval, "%v is not between 1ms and 1h", every)
		}
		drop(r, &d.Interval, r.by[interval].period, "dropin.statsd.interval", interval)
	default:
		r.note(statsd, "no statsd")
		why := "USE_STATSD is false"
		if r.truth(statsd) {
			why = "neither USE_STATSD nor STATSD_HOST is set"
		}
		r.noEffect(why, toStatsd...)
	}
	switch {
	case r.truth(prometheus):
		d := &r.dropIn.Metrics
		drop(r, &d.Address, settings.Address(r.text("PROMETHEUS_ADDR")), "dropin.metrics.address", prometheus, "PROMETHEUS_ADDR")
		if !strings.HasPrefix(r.text("PROMETHEUS_PATH"), "/") {
			r.refuse("PROMETHEUS_PATH", "%s does not begin with /", strict.Quote(r.text("PROMETHEUS_PATH")))
		}
		drop(r, &d.Path, r.text("PROMETHEUS_PATH"), "dropin.metrics.path", "PROMETHEUS_PATH")
		if file := r.text("PROMETHEUS_MAPPER_YAML"); file != "" {
			drop(r, &d.MapperFile, file, "dropin.metrics.mapper_file", "PROMETHEUS_MAPPER_YAML")
		}
		drop(r, &d.Milliseconds, r.truth("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"), "dropin.metrics.milliseconds", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS")
		if r.truth(statsd) {
			r.note(prometheus, "envoyproxy/ratelimit does not start with it unless USE_STATSD is false")
		}
	default:
		r.note(prometheus, "no listener for Prometheus")
		r.noEffect("USE_PROMETHEUS is not true", toPrometheus...)
	}
	r.tags()
}

// tagName matches the name of a tag. It is also the name of a label for Prometheus, with _ for
// each other character.
var tagName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// tags reads the tags of all metrics, unless there are no metrics.
func (r *reader) tags() {
	const name = "EXTRA_TAGS"
	d := &r.dropIn
	if d.Statsd.Address == "" && d.Metrics.Address == "" {
		r.noEffect("the metrics of envoyproxy/ratelimit go nowhere", name)
		return
	}
	var shown []string
	tags := make(map[string]string)
	for _, p := range r.by[name].pairs {
		_, again := tags[p[0]]
		switch {
		case !tagName.MatchString(p[0]) || p[1] == "":
			r.refuse(name, "%s is not the name of a tag with a value: write name:value, with letters, digits and _.- in the name", strict.Quote(p[0]))
		case again:
			r.refuse(name, "%s is listed twice", strict.Quote(p[0]))
		case d.Metrics.Address != "" && (p[0] == "le" || p[0] == "quantile"):
			r.refuse(name, "%s is a label that Prometheus itself uses: choose another name", p[0])
		}
		tags[p[0]], shown = p[1], append(shown, p[0]+"="+p[1])
	}
	if slices.Sort(shown); len(tags) > 0 {
		d.Tags = tags
		drop(r, new([]string), shown, "dropin.tags", name)
	}
}

// share gives the drop-in the share from 0 to 1 that a variable says.
func (r *reader) share(to *float64, path, name string) {
	f := r.by[name].share
	if !(f >= 0 && f <= 1) {
		r.refuse(name, "expected %s, got %s", oneShare, strict.Quote(r.text(name)))
		return
	}
	drop(r, to, f, path, name)
}

// dogStatsd refuses DogStatsD.
func (r *reader) dogStatsd(name string) {
	if !r.truth(name) {
		r.note(name, "no DogStatsD")
		return
	}
	r.refuse(name, "rls does not send DogStatsD: set it to false, and USE_STATSD=true or USE_PROMETHEUS=true, or DISABLE_STATS=true")
}

// traces reads where spans go. Without TRACING_ENABLED there are none, whatever the variables of
// OpenTelemetry say, as in the reference.
func (r *reader) traces() {
	const enabled, name, namespace, instance, protocol, rate = "TRACING_ENABLED", "TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID", "TRACING_EXPORTER_PROTOCOL", "TRACING_SAMPLING_RATE"
	d := &r.dropIn.Traces
	if !r.truth(enabled) {
		drop(r, &d.Protocol, settings.TracesOff, "dropin.traces.protocol", enabled)
		r.noEffect("TRACING_ENABLED is not true", name, namespace, instance, protocol, rate)
		return
	}
	text := r.text(protocol)
	if text == "" {
		text = settings.TracesHTTP
	}
	if text != settings.TracesHTTP && text != settings.TracesGRPC {
		r.refuse(protocol, "%s", strict.NotOneOf(text, []string{settings.TracesHTTP, settings.TracesGRPC}))
		return
	}
	drop(r, &d.Protocol, text, "dropin.traces.protocol", enabled, protocol)
	r.share(&d.Sampling, "dropin.traces.sampling", rate)
	var attributes []string
	for _, a := range []struct{ variable, attribute string }{
		{name, "service.name"}, {namespace, "service.namespace"}, {instance, "service.instance.id"},
	} {
		value := r.text(a.variable)
		if strings.Contains(value, ",") {
			r.refuse(a.variable, "a comma cannot be in %s", a.attribute)
			return
		}
		if value != "" {
			attributes = append(attributes, a.attribute+"="+value)
		}
	}
	drop(r, &d.Attributes, attributes, "dropin.traces.attributes", name, namespace, instance)
}
