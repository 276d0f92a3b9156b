package envoydump

import (
	"bytes"
	"encoding/json"
	"strings"
)

// An Address is where a listener or an endpoint is.
type Address struct {
	Socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
	Pipe struct {
		Path string `json:"path"`
	} `json:"pipe"`
}

// A Listener has at least one filter chain.
type Listener struct {
	Name    string        `json:"name"`
	Address Address       `json:"address"`
	Chains  []FilterChain `json:"filter_chains"`
	Default *FilterChain  `json:"default_filter_chain"`
}

// A FilterChain serves the connections that it matches.
type FilterChain struct {
	Name    string   `json:"name"`
	Filters []Filter `json:"filters"`
}

// A Filter is one of the network or HTTP filters.
type Filter struct {
	Name   string `json:"name"`
	Config Any    `json:"typed_config"`
	// Discovery names the resource that has the configuration, if Config is empty.
	Discovery *struct{} `json:"config_discovery"`
	Disabled  bool      `json:"disabled"`
}

// A Manager is an HTTP connection manager.
type Manager struct {
	Routes *Routes `json:"route_config"`
	RDS    struct {
		Name string `json:"route_config_name"`
	} `json:"rds"`
	Filters          []Filter `json:"http_filters"`
	UseRemoteAddress bool     `json:"use_remote_address"`
	TrustedHops      int      `json:"xff_num_trusted_hops"`
	Detection        []Filter `json:"original_ip_detection_extensions"`
	NormalizePath    *bool    `json:"normalize_path"`
	MergeSlashes     bool     `json:"merge_slashes"`
	EscapedSlashes   string   `json:"path_with_escaped_slashes_action"`
	HTTP             struct {
		MaxStream string `json:"max_stream_duration"`
	} `json:"common_http_protocol_options"`
	Early []struct {
		Config struct {
			Mutations []struct {
				Remove  string `json:"remove"`
				OnMatch *struct {
					Key StringMatcher `json:"key_matcher"`
				} `json:"remove_on_match"`
				Append struct {
					Header struct {
						Key string `json:"key"`
					} `json:"header"`
					Action string `json:"append_action"`
				} `json:"append"`
			} `json:"mutations"`
		} `json:"typed_config"`
	} `json:"early_header_mutation_extensions"` // before routing
}

// A Fraction is a fraction of the requests, which a runtime key can change.
type Fraction struct {
	Default struct {
		Numerator   uint32 `json:"numerator"`
		Denominator string `json:"denominator"`
	} `json:"default_value"`
	Key string `json:"runtime_key"`
}

// A Call says which service a filter calls, and how.
type Call struct {
	Envoy struct {
		Cluster string `json:"cluster_name"`
	} `json:"envoy_grpc"`
	Retry    *struct{}  `json:"retry_policy"`
	Metadata []KeyValue `json:"initial_metadata"`
}

// A KeyValue is a header of a call, and the format of its value.
type KeyValue struct{ Key, Value string }

// RateLimitFilter is the configuration of a ratelimit filter.
type RateLimitFilter struct {
	Domain      string      `json:"domain"`
	Stage       uint32      `json:"stage"`
	RequestType string      `json:"request_type"`
	Timeout     *string     `json:"timeout"`
	Enabled     *Fraction   `json:"filter_enabled"`
	Enforced    *Fraction   `json:"filter_enforced"`
	Limits      []RateLimit `json:"rate_limits"`
	Status      *struct {
		Code string `json:"code"`
	} `json:"rate_limited_status"`
	Exhausted bool `json:"rate_limited_as_resource_exhausted"`
	Service   struct {
		Call Call `json:"grpc_service"`
	} `json:"rate_limit_service"`
}

// Authorization is the configuration of an ext_authz filter.
type Authorization struct {
	Call Call `json:"grpc_service"`
	Open bool `json:"failure_mode_allow"`
	// AllowedHeaders are those that Envoy sends. Nil: all but the disallowed ones.
	AllowedHeaders    *StringMatchers `json:"allowed_headers"`
	DisallowedHeaders StringMatchers  `json:"disallowed_headers"`
}

// StringMatchers match what one of them matches.
type StringMatchers struct {
	Patterns []StringMatcher `json:"patterns"`
}

// A StringMatcher has one of these fields.
type StringMatcher struct {
	Exact    string `json:"exact"`
	Prefix   string `json:"prefix"`
	Suffix   string `json:"suffix"`
	Contains string `json:"contains"`
	Regex    *struct {
		Regex string `json:"regex"`
	} `json:"safe_regex"`
	Fold bool `json:"ignore_case"`
}

// AuthorizationPerRoute is what a route says to an ext_authz filter. Envoy hides the values of Context.
type AuthorizationPerRoute struct {
	Disabled bool `json:"disabled"`
	Check    struct {
		Context map[string]string `json:"context_extensions"`
	} `json:"check_settings"`
}

// RateLimitPerRoute is what a route says to a ratelimit filter.
type RateLimitPerRoute struct {
	Domain string      `json:"domain"`
	VH     string      `json:"vh_rate_limits"`
	Limits []RateLimit `json:"rate_limits"`
}

// FilterConfig wraps what a route says to a filter.
type FilterConfig struct {
	Config   Any  `json:"config"`
	Disabled bool `json:"disabled"`
}

// PerFilter is what a route, a virtual host or a route configuration says to filters, by their names.
type PerFilter map[string]Any

// Routes is a route configuration.
type Routes struct {
	Name      string        `json:"name"`
	Hosts     []VirtualHost `json:"virtual_hosts"`
	PerFilter PerFilter     `json:"typed_per_filter_config"`
	VHDS      *struct{}     `json:"vhds"`
	Removed   []string      `json:"request_headers_to_remove"`
}

// A VirtualHost has the routes of some domains.
type VirtualHost struct {
	Name      string      `json:"name"`
	Domains   []string    `json:"domains"`
	Routes    []Route     `json:"routes"`
	Matcher   *struct{}   `json:"matcher"`
	Limits    []RateLimit `json:"rate_limits"`
	PerFilter PerFilter   `json:"typed_per_filter_config"`
	Removed   []string    `json:"request_headers_to_remove"`
}

// A Route forwards the requests that it matches if Action is set.
type Route struct {
	Name   string `json:"name"`
	Match  Match  `json:"match"`
	Action *struct {
		Cluster  string `json:"cluster"`
		Weighted struct {
			Clusters []WeightedCluster `json:"clusters"`
		} `json:"weighted_clusters"`
		Limits    []RateLimit `json:"rate_limits"`
		IncludeVH bool        `json:"include_vh_rate_limits"`
		MaxStream struct {
			Duration string `json:"max_stream_duration"`
		} `json:"max_stream_duration"`
	} `json:"route"`
	PerFilter PerFilter `json:"typed_per_filter_config"`
	Removed   []string  `json:"request_headers_to_remove"`
}

// A WeightedCluster gets a part of the requests.
type WeightedCluster struct {
	Name      string    `json:"name"`
	PerFilter PerFilter `json:"typed_per_filter_config"`
}

// A Match says which requests a route takes. Of the other conditions only their presence is known.
type Match struct {
	Prefix          *string `json:"prefix"`
	Path            string  `json:"path"`
	SeparatedPrefix string  `json:"path_separated_prefix"`
	Regex           struct {
		Regex string `json:"regex"`
	} `json:"safe_regex"`
	CaseSensitive *bool      `json:"case_sensitive"`
	Headers       []struct{} `json:"headers"`
	Query         []struct{} `json:"query_parameters"`
	Cookies       []struct{} `json:"cookies"`
	State         []struct{} `json:"filter_state"`
	Metadata      []struct{} `json:"dynamic_metadata"`
	GRPC          *struct{}  `json:"grpc"`
	TLS           *struct{}  `json:"tls_context"`
	Fraction      *struct{}  `json:"runtime_fraction"`
}

// A RateLimit makes one descriptor.
type RateLimit struct {
	Stage      uint32    `json:"stage"`
	DisableKey string    `json:"disable_key"`
	Actions    []Action  `json:"actions"`
	Override   *Override `json:"limit"`
	AtEnd      bool      `json:"apply_on_stream_done"`
	Cost       *struct {
		Format string `json:"format"`
	} `json:"hits_addend"`
}

// An Action makes one entry of a descriptor. Kind is the name of the field of Envoy's message, such as
// request_headers.
type Action struct {
	Kind string
	ActionConfig
}

// ActionConfig has the fields of all kinds of actions.
type ActionConfig struct {
	Key          string      `json:"descriptor_key"`
	Value        string      `json:"descriptor_value"`
	Default      string      `json:"default_value"`
	Header       string      `json:"header_name"`
	Parameter    string      `json:"query_parameter_name"`
	SkipIfAbsent bool        `json:"skip_if_absent"`
	Source       string      `json:"source"`
	Metadata     MetadataKey `json:"metadata_key"`
}

// A MetadataKey is where metadata has a value.
type MetadataKey struct {
	Namespace string `json:"key"`
	Path      []struct {
		Key string `json:"key"`
	} `json:"path"`
}

// An Override is where metadata has the limit of a descriptor, in place of that of the rule.
type Override struct {
	Dynamic struct {
		Metadata MetadataKey `json:"metadata_key"`
	} `json:"dynamic_metadata"`
}

// UnmarshalJSON reads the one field that an action has.
func (a *Action) UnmarshalJSON(data []byte) error {
	var one map[string]ActionConfig
	err := json.Unmarshal(data, &one)
	for a.Kind, a.ActionConfig = range one {
		break
	}
	if err != nil || len(one) != 1 {
		a.Kind = "" // the checks say that it is not read
	}
	return nil
}

// Any is a message that names its type.
type Any struct {
	// Type is the last two words of the type without its version, such as ratelimit.RateLimit.
	Type string
	// Message is a pointer to a type of this package. Nil: the type is not among them, or the message is
	// not as Envoy writes it.
	Message any
	// HasLimits and HasPath are true if the text of a message that is not read has a ratelimit filter, or
	// names the header :path.
	HasLimits, HasPath bool
}

var messages = map[string]func() any{
	"http_connection_manager.HttpConnectionManager": func() any { return new(Manager) },
	"tcp_proxy.TcpProxy":                            func() any { return new(TCPProxy) },
	"ratelimit.RateLimit":                           func() any { return new(RateLimitFilter) },
	"ratelimit.RateLimitPerRoute":                   func() any { return new(RateLimitPerRoute) },
	"ext_authz.ExtAuthz":                            func() any { return new(Authorization) },
	"ext_authz.ExtAuthzPerRoute":                    func() any { return new(AuthorizationPerRoute) },
	"route.FilterConfig":                            func() any { return new(FilterConfig) },
	"tls.UpstreamTlsContext":                        func() any { return new(UpstreamTLS) },
	"http.HttpProtocolOptions":                      func() any { return new(HTTPOptions) },
}

// UnmarshalJSON decodes the message if its type is known.
func (a *Any) UnmarshalJSON(data []byte) error {
	var head struct {
		Type  string          `json:"@type"`
		URL   string          `json:"type_url"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(data, &head) != nil {
		return nil // Message stays nil
	}
	a.Type = ShortType(head.Type)
	if a.Type == "v3.TypedStruct" || a.Type == "v1.TypedStruct" || strings.HasSuffix(a.Type, ".TypedStruct") {
		a.Type, data = ShortType(head.URL), head.Value
	}
	if message := messages[a.Type]; message != nil {
		if a.Message = message(); json.Unmarshal(data, a.Message) == nil {
			return nil
		}
		a.Message = nil
	}
	a.HasLimits = bytes.Contains(data, []byte("filters.http.ratelimit.v3."))
	a.HasPath = bytes.Contains(data, []byte(":path"))
	return nil
}

// ShortType returns the last two words of a type without its version, such as ratelimit.RateLimitPerRoute.
func ShortType(url string) string {
	words := strings.Split(url[strings.LastIndexByte(url, '/')+1:], ".")
	if len(words) < 3 {
		return url
	}
	return words[len(words)-3] + "." + words[len(words)-1]
}
