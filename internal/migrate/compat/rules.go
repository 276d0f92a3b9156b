package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// The values of CONFIG_TYPE.
const (
	configFile = "FILE"
	configXDS  = "GRPC_XDS_SOTW"
)

func (r *reader) rules() {
	r.giveTruth("rules.merge_domains", r.truth("MERGE_DOMAIN_CONFIG"), "MERGE_DOMAIN_CONFIG")
	r.giveTruth("rules.shadow_mode", r.truth("SHADOW_MODE"), "SHADOW_MODE")
	drop(r, &r.dropIn.QuotaMode, r.truth("QUOTA_MODE"), "dropin.rules.quota_mode", "QUOTA_MODE")
	drop(r, &r.dropIn.EchoRequest, r.truth("RESPONSE_DYNAMIC_METADATA"), "dropin.metadata.request", "RESPONSE_DYNAMIC_METADATA")

	source := r.configured.Settings.Rules.Source
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

// files reads the directory of rules. envoyproxy/ratelimit keeps the files of ROOT/SUBDIRECTORY whose
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

func (r *reader) prefix(app, name string, others ...string) {
	if strings.Contains(app, "/") || strings.HasSuffix(app, ".") || strings.ContainsFunc(app, unicode.IsControl) {
		r.refuse(name, "%s is not the name of a directory: write it without / and a dot at the end", strict.Quote(app))
	}
	drop(r, &r.dropIn.Files.Prefix, app, "dropin.rules.prefix", append([]string{name}, others...)...)
}

func (r *reader) exists(path string) bool {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		r.refuse("RUNTIME_ROOT", "%s does not exist; the path is RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and, if RUNTIME_WATCH_ROOT is false, RUNTIME_APPDIRECTORY", strict.Quote(path))
		return false
	}
	return true
}

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

const xdsUseTLS, xdsServerSAN = "CONFIG_GRPC_XDS_SERVER_USE_TLS", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"

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

// nodeMetadata reads the metadata of the node. envoyproxy/ratelimit drops parts without =.
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

// clientTLS gives the files of a connection that rls makes. envoyproxy/ratelimit uses a certificate
// only together with its key, and adds the CA to the system's.
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
