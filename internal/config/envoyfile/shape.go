package envoyfile

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// lenient is embedded in what has much that this package does not need.
type lenient struct{}

// AdviseKey lets every key pass.
func (lenient) AdviseKey(string) strict.KeyAdvice { return strict.KeyAdvice{Ignored: true} }

// anything is a message of any type. It is read later, when its type is known.
type anything struct {
	strict.Spot
	typ  string
	node *yaml.Node
	path *strict.Path
}

// ReadNode reads the type of a node.
func (a *anything) ReadNode(d *strict.Decoder, n *yaml.Node, p *strict.Path) {
	a.Spot, a.node, a.path = d.Spot(n, p), n, p
	if n.Kind != yaml.MappingNode {
		return
	}
	peek := struct {
		lenient
		Type    string                 `yaml:"@type"`
		TypeURL string                 `yaml:"type_url"`
		Value   strict.Field[anything] `yaml:"value"`
	}{}
	// What is wrong is reported when the node is read.
	quiet := &strict.Decoder{File: d.File, Report: &strict.Report{}, Warn: &strict.Report{}, Proto: true}
	quiet.Decode(n, reflect.ValueOf(&peek).Elem(), p)
	a.typ = shortType(peek.Type)
	if strings.HasSuffix(a.typ, ".TypedStruct") {
		a.typ, a.node, a.path = shortType(peek.TypeURL), peek.Value.Value.node, peek.Value.Value.path
	}
}

// shortType returns the last two words of a type without its version, such as
// ratelimit.RateLimitPerRoute.
func shortType(url string) string {
	words := strings.Split(url[strings.LastIndexByte(url, '/')+1:], ".")
	if len(words) < 3 {
		return url
	}
	return words[len(words)-3] + "." + words[len(words)-1]
}

// The types that are read.
const (
	typeManager      = "http_connection_manager.HttpConnectionManager"
	typeFilter       = "ratelimit.RateLimit"
	typePerRoute     = "ratelimit.RateLimitPerRoute"
	typeFilterConfig = "route.FilterConfig"
	typeCheck        = "ext_authz.ExtAuthz"
	typeCheckRoute   = "ext_authz.ExtAuthzPerRoute"
	typeExpression   = "expr.Descriptor"
	typeDump         = "admin.BootstrapConfigDump"
)

// mentions reports whether a message has the name of a type anywhere in it.
func (a *anything) mentions(typ string) bool {
	left := maxMentions
	var in func(n *yaml.Node, depth int) bool
	in = func(n *yaml.Node, depth int) bool {
		if left--; n == nil || left < 0 || depth > maxDepth {
			return false
		}
		if n.Kind == yaml.AliasNode {
			return in(n.Alias, depth+1)
		}
		return n.Kind == yaml.ScalarNode && shortType(n.Value) == typ || slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return in(c, depth+1) })
	}
	return in(a.node, 0)
}

// maxMentions bounds the values of one message that are looked at.
const maxMentions = 100_000

// into reads a message.
func (a *anything) into(d *strict.Decoder, v any) {
	if a.node != nil {
		d.Decode(a.node, reflect.ValueOf(v).Elem(), a.path)
	}
}

// typed is a message with its type.
type typed struct {
	Type string `yaml:"@type"`
}

type manager struct {
	lenient
	RouteConfig strict.Field[anything]                   `yaml:"route_config"`
	RDS         strict.Field[rds]                        `yaml:"rds"`
	Scoped      strict.Field[anything]                   `yaml:"scoped_routes"`
	Filters     strict.Field[[]strict.Field[httpFilter]] `yaml:"http_filters"`
	Logs        []accessLog                              `yaml:"access_log"`
}

type accessLog struct {
	lenient
	Config strict.Field[anything] `yaml:"typed_config"`
}

// logger is an access logger that writes lines.
type logger struct {
	lenient
	Text  anything `yaml:"format"`
	JSON  anything `yaml:"json_format"`
	Typed anything `yaml:"typed_json_format"`
	Log   struct {
		lenient
		Text   anything `yaml:"text_format"`
		Source struct {
			lenient
			Inline anything `yaml:"inline_string"`
		} `yaml:"text_format_source"`
		JSON anything `yaml:"json_format"`
	} `yaml:"log_format"`
}

type rds struct {
	lenient
	Name strict.Field[string] `yaml:"route_config_name"`
}

type httpFilter struct {
	lenient
	Name      string                 `yaml:"name"`
	Config    strict.Field[anything] `yaml:"typed_config"`
	Discovery strict.Field[anything] `yaml:"config_discovery"`
	Disabled  bool                   `yaml:"disabled"`
}

// limitFilter is a ratelimit filter.
type limitFilter struct {
	lenient
	Domain      strict.Field[string]      `yaml:"domain,required"`
	Stage       strict.Field[uint64]      `yaml:"stage"`
	RequestType strict.Field[string]      `yaml:"request_type"`
	Limits      []strict.Field[rateLimit] `yaml:"rate_limits"`
	Enabled     strict.Field[fraction]    `yaml:"filter_enabled"`
}

// fraction is a share of requests.
type fraction struct {
	lenient
	Default strict.Field[struct {
		lenient
		Numerator strict.Field[uint64] `yaml:"numerator"`
	}] `yaml:"default_value"`
}

// never reports whether no request is among the share, as far as the file says.
func never(f *strict.Field[fraction]) bool {
	return f.Set && f.Value.Default.Set && f.Value.Default.Value.Numerator.Value == 0
}

type routes struct {
	lenient
	Name             string                                 `yaml:"name"`
	Hosts            []strict.Field[virtualHost]            `yaml:"virtual_hosts"`
	VHDS             strict.Field[anything]                 `yaml:"vhds"`
	HostHeader       string                                 `yaml:"vhost_header"`
	IgnorePort       bool                                   `yaml:"ignore_port_in_host_matching"`
	IgnoreParameters bool                                   `yaml:"ignore_path_parameters_in_path_matching"`
	PerFilter        strict.Ordered[strict.Field[anything]] `yaml:"typed_per_filter_config"`
	Remove           []string                               `yaml:"request_headers_to_remove"`
	Add              []headerOption                         `yaml:"request_headers_to_add"`
}

// headerOption is a header that Envoy adds.
type headerOption struct {
	lenient
	Header struct {
		lenient
		Key string `yaml:"key"`
	} `yaml:"header"`
}

type virtualHost struct {
	lenient
	Name      string                                 `yaml:"name"`
	Domains   strict.Field[[]strict.Field[string]]   `yaml:"domains,required"`
	Routes    []strict.Field[route]                  `yaml:"routes"`
	Matcher   strict.Field[anything]                 `yaml:"matcher"`
	Limits    []strict.Field[rateLimit]              `yaml:"rate_limits"`
	PerFilter strict.Ordered[strict.Field[anything]] `yaml:"typed_per_filter_config"`
	Remove    []string                               `yaml:"request_headers_to_remove"`
	Add       []headerOption                         `yaml:"request_headers_to_add"`
}

type route struct {
	lenient
	Name      string                                 `yaml:"name"`
	Match     strict.Field[match]                    `yaml:"match,required"`
	Route     strict.Field[routeAction]              `yaml:"route"`
	Metadata  strict.Field[metadata]                 `yaml:"metadata"`
	PerFilter strict.Ordered[strict.Field[anything]] `yaml:"typed_per_filter_config"`
	Remove    []string                               `yaml:"request_headers_to_remove"`
	Add       []headerOption                         `yaml:"request_headers_to_add"`
}

type metadata struct {
	lenient
	Filters strict.Ordered[strict.Field[anything]] `yaml:"filter_metadata"`
}

type routeAction struct {
	lenient
	Cluster   strict.Field[string]      `yaml:"cluster"`
	Limits    []strict.Field[rateLimit] `yaml:"rate_limits"`
	IncludeVH bool                      `yaml:"include_vh_rate_limits"`
	Weighted  strict.Field[weighted]    `yaml:"weighted_clusters"`
	Prefix    strict.Field[anything]    `yaml:"prefix_rewrite"`
	Regex     strict.Field[anything]    `yaml:"regex_rewrite"`
	Policy    strict.Field[anything]    `yaml:"path_rewrite_policy"`
	Path      strict.Field[anything]    `yaml:"path_rewrite"`
	// What changes the host.
	Host        strict.Field[anything] `yaml:"host_rewrite"`
	HostLiteral strict.Field[anything] `yaml:"host_rewrite_literal"`
	HostHeader  strict.Field[anything] `yaml:"host_rewrite_header"`
	HostPath    strict.Field[anything] `yaml:"host_rewrite_path_regex"`
	HostAuto    strict.Field[bool]     `yaml:"auto_host_rewrite"`
}

// rewritesHost reports whether Envoy changes the host after the rate limit.
func (a *routeAction) rewritesHost() bool {
	return a.Host.Set || a.HostLiteral.Set || a.HostHeader.Set || a.HostPath.Set || a.HostAuto.Value
}

type weighted struct {
	lenient
	Clusters []strict.Field[struct {
		lenient
		PerFilter strict.Ordered[strict.Field[anything]] `yaml:"typed_per_filter_config"`
	}] `yaml:"clusters"`
}

// match is read strictly: an unknown condition would change which requests have which limits.
type match struct {
	Prefix          strict.Field[strict.Blankable] `yaml:"prefix"`
	Path            strict.Field[string]           `yaml:"path"`
	Regex           strict.Field[regex]            `yaml:"safe_regex"`
	Separated       strict.Field[string]           `yaml:"path_separated_prefix"`
	Connect         strict.Field[anything]         `yaml:"connect_matcher"`
	Policy          strict.Field[anything]         `yaml:"path_match_policy"`
	CaseSensitive   strict.Field[bool]             `yaml:"case_sensitive"`
	Fraction        strict.Field[fraction]         `yaml:"runtime_fraction"`
	Headers         []strict.Field[headerMatcher]  `yaml:"headers"`
	Query           []strict.Field[queryMatcher]   `yaml:"query_parameters"`
	Cookies         strict.Field[anything]         `yaml:"cookies"`
	GRPC            strict.Field[anything]         `yaml:"grpc"`
	TLS             strict.Field[anything]         `yaml:"tls_context"`
	DynamicMetadata strict.Field[anything]         `yaml:"dynamic_metadata"`
	FilterState     strict.Field[anything]         `yaml:"filter_state"`
}

type regex struct {
	lenient
	Regex strict.Field[string] `yaml:"regex,required"`
}

type headerMatcher struct {
	Name     strict.Field[string]           `yaml:"name,required"`
	Exact    strict.Field[strict.Blankable] `yaml:"exact_match"`
	Regex    strict.Field[regex]            `yaml:"safe_regex_match"`
	Range    strict.Field[intRange]         `yaml:"range_match"`
	Present  strict.Field[bool]             `yaml:"present_match"`
	Prefix   strict.Field[string]           `yaml:"prefix_match"`
	Suffix   strict.Field[string]           `yaml:"suffix_match"`
	Contains strict.Field[string]           `yaml:"contains_match"`
	Text     strict.Field[stringMatcher]    `yaml:"string_match"`
	Invert   bool                           `yaml:"invert_match"`
	Empty    bool                           `yaml:"treat_missing_header_as_empty"`
}

type intRange struct {
	Start strict.Field[whole] `yaml:"start"`
	End   strict.Field[whole] `yaml:"end"`
}

type queryMatcher struct {
	Name    strict.Field[string]        `yaml:"name,required"`
	Text    strict.Field[stringMatcher] `yaml:"string_match"`
	Present strict.Field[bool]          `yaml:"present_match"`
}

type stringMatcher struct {
	Exact    strict.Field[strict.Blankable] `yaml:"exact"`
	Prefix   strict.Field[string]           `yaml:"prefix"`
	Suffix   strict.Field[string]           `yaml:"suffix"`
	Regex    strict.Field[regex]            `yaml:"safe_regex"`
	Contains strict.Field[string]           `yaml:"contains"`
	Custom   strict.Field[anything]         `yaml:"custom"`
	Fold     bool                           `yaml:"ignore_case"`
}

// perRoute is a RateLimitPerRoute.
type perRoute struct {
	typed
	VH       strict.Field[string]      `yaml:"vh_rate_limits"`
	Override strict.Field[string]      `yaml:"override_option"` // Envoy does not implement it
	Limits   []strict.Field[rateLimit] `yaml:"rate_limits"`
	Domain   string                    `yaml:"domain"`
}

// filterConfig is a FilterConfig.
type filterConfig struct {
	lenient
	Config   strict.Field[anything] `yaml:"config"`
	Disabled bool                   `yaml:"disabled"`
}

type rateLimit struct {
	Stage      strict.Field[uint64]                 `yaml:"stage"`
	DisableKey string                               `yaml:"disable_key"`
	Actions    strict.Field[[]strict.Field[action]] `yaml:"actions,required"`
	Limit      strict.Field[limitOverride]          `yaml:"limit"`
	Cost       strict.Field[hitsAddend]             `yaml:"hits_addend"`
	AtEnd      bool                                 `yaml:"apply_on_stream_done"`
	Headers    strict.Field[anything]               `yaml:"x_ratelimit_option"`
}

type limitOverride struct {
	Metadata strict.Field[struct {
		Key strict.Field[metadataKey] `yaml:"metadata_key,required"`
	}] `yaml:"dynamic_metadata"`
	Fixed strict.Field[struct {
		Requests strict.Field[uint64] `yaml:"requests_per_unit"`
		Unit     strict.Field[string] `yaml:"unit"`
	}] `yaml:"rate_limit"`
}

type hitsAddend struct {
	Number strict.Field[uint64] `yaml:"number"`
	Format strict.Field[string] `yaml:"format"`
	Refund bool                 `yaml:"is_negative_hits"`
}

type metadataKey struct {
	Key  string `yaml:"key,required"`
	Path []struct {
		Key string `yaml:"key,required"`
	} `yaml:"path,required"`
}

type none struct{}

type action struct {
	SourceCluster      strict.Field[none]          `yaml:"source_cluster"`
	DestinationCluster strict.Field[none]          `yaml:"destination_cluster"`
	RequestHeaders     strict.Field[headerAction]  `yaml:"request_headers"`
	QueryParameters    strict.Field[queryAction]   `yaml:"query_parameters"`
	RemoteAddress      strict.Field[none]          `yaml:"remote_address"`
	GenericKey         strict.Field[genericKey]    `yaml:"generic_key"`
	HeaderValueMatch   strict.Field[headersAction] `yaml:"header_value_match"`
	DynamicMetadata    strict.Field[metaAction]    `yaml:"dynamic_metadata"`
	Metadata           strict.Field[metaAction]    `yaml:"metadata"`
	Extension          strict.Field[extension]     `yaml:"extension"`
	Masked             strict.Field[masked]        `yaml:"masked_remote_address"`
	QueryValueMatch    strict.Field[queriesAction] `yaml:"query_parameter_value_match"`
	AddressMatch       strict.Field[addressAction] `yaml:"remote_address_match"`
}

type headerAction struct {
	Header string `yaml:"header_name,required"`
	Key    string `yaml:"descriptor_key,required"`
	Skip   bool   `yaml:"skip_if_absent"`
}

type queryAction struct {
	Name string `yaml:"query_parameter_name,required"`
	Key  string `yaml:"descriptor_key,required"`
	Skip bool   `yaml:"skip_if_absent"`
}

type genericKey struct {
	Value   strict.Blankable `yaml:"descriptor_value"`
	Default strict.Blankable `yaml:"default_value"`
	Key     string           `yaml:"descriptor_key"`
}

type headersAction struct {
	genericKey
	Expect  strict.Field[bool]            `yaml:"expect_match"`
	Headers []strict.Field[headerMatcher] `yaml:"headers,required"`
}

type queriesAction struct {
	genericKey
	Expect strict.Field[bool]           `yaml:"expect_match"`
	Query  []strict.Field[queryMatcher] `yaml:"query_parameters,required"`
}

type metaAction struct {
	Key     string                    `yaml:"descriptor_key,required"`
	From    strict.Field[metadataKey] `yaml:"metadata_key,required"`
	Default strict.Blankable          `yaml:"default_value"`
	Source  strict.Field[string]      `yaml:"source"`
	Skip    bool                      `yaml:"skip_if_absent"`
}

type masked struct {
	V4 strict.Field[uint64] `yaml:"v4_prefix_mask_len"`
	V6 strict.Field[uint64] `yaml:"v6_prefix_mask_len"`
}

type addressAction struct {
	genericKey
	Matcher strict.Field[struct {
		Ranges []strict.Field[struct {
			Address string               `yaml:"address_prefix,required"`
			Bits    strict.Field[uint64] `yaml:"prefix_len"`
		}] `yaml:"ranges"`
		Invert bool `yaml:"invert_match"`
	}] `yaml:"address_matcher,required"`
}

type extension struct {
	lenient
	Name   string                 `yaml:"name"`
	Config strict.Field[anything] `yaml:"typed_config"`
}

type expression struct {
	typed
	Key    string                 `yaml:"descriptor_key,required"`
	Text   strict.Field[string]   `yaml:"text"`
	Parsed strict.Field[anything] `yaml:"parsed"`
	Skip   bool                   `yaml:"skip_if_error"`
}

// whole is a whole number that may be negative.
type whole int64

// UnmarshalText reads a number.
func (w *whole) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if f, inexact := strconv.ParseFloat(string(text), 64); err != nil && inexact == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n, err = int64(f), nil // such as 5.0
	}
	if err != nil {
		return fmt.Errorf("expected a whole number, got %s", strict.Quote(string(text)))
	}
	*w = whole(n)
	return nil
}

// check is what an ExtAuthzPerRoute says about limits.
type check struct {
	lenient
	Settings struct {
		lenient
		Context strict.Ordered[strict.Blankable] `yaml:"context_extensions"`
	} `yaml:"check_settings"`
}
