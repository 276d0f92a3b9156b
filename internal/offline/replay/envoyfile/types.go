package envoyfile

import (
	"net/netip"
	"strconv"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/window"
)

// A Location is a line of a file.
type Location struct {
	File string
	Line int
}

// String returns file:line.
func (p Location) String() string { return p.File + ":" + strconv.Itoa(p.Line) }

// A Config is what Envoy's configuration says about calls of a rate-limit service.
type Config struct {
	// Cluster is node.cluster, the value of source_cluster. Empty: the files do not have it.
	Cluster  string
	Managers []*Manager
	// Checks are the locations of ext_authz filters for which the routes name descriptors: rls takes
	// these limits within the authorization, and Envoy makes no descriptor.
	Checks []Location
	// Logs are the formats of the access logs that the connection managers write.
	Logs []accesslog.Written
}

// A Manager is an HTTP connection manager.
type Manager struct {
	Location
	Listener string // its name, may be empty
	Port     int    // zero: unknown
	Routes   *Routes
	// Filters are the ratelimit filters, in order.
	Filters []*Filter
}

// A Filter is a ratelimit filter.
type Filter struct {
	Location
	Name     string
	Domain   string
	Stage    uint64
	Requests RequestType
	Limits   []*RateLimit
	// Off is true if the filter is disabled until a route enables it.
	Off bool
	// Before has the types of the filters in front of this one, such as ext_authz: the last word of
	// their package.
	Before []string
}

// A RequestType says which requests a filter asks about.
type RequestType uint8

// The request types.
const (
	AnyRequest RequestType = iota
	InternalRequest
	ExternalRequest
)

// Routes is a route configuration.
type Routes struct {
	Location
	Name  string
	Hosts []*VirtualHost
	// HostHeader is the header that selects the virtual host. Empty: the authority.
	HostHeader string
	// IgnorePort: the port of the authority does not count.
	IgnorePort bool
	// IgnoreParameters: what follows a semicolon in a path does not count.
	IgnoreParameters bool
	PerFilter        map[string]*PerRoute
	Changed          []string
}

// A VirtualHost is a list of routes for some domains.
type VirtualHost struct {
	Location
	Name      string
	Domains   []string
	Routes    []*Route
	Limits    []*RateLimit
	PerFilter map[string]*PerRoute
	// Changed names the request headers that Envoy changes after the rate limit, in lower case:
	// access logs have the later value.
	Changed []string
}

// A Route is one route.
type Route struct {
	Location
	Name  string
	Match Match
	// Forwards is false for a direct response or a redirect. Envoy asks nothing about these.
	Forwards bool
	// Cluster is the destination. Empty: it differs by request.
	Cluster   string
	Limits    []*RateLimit
	IncludeVH bool
	PerFilter map[string]*PerRoute
	// Rewrites is true if Envoy changes the path after the rate limit.
	Rewrites bool
	// RewritesHost is true if Envoy changes the host after the rate limit. Then Changed has the
	// headers :authority and host.
	RewritesHost bool
	// Metadata is the metadata of the route.
	Metadata map[string]any
	Changed  []string
}

// VH says whether the limits of the virtual host count.
type VH uint8

// The options of vh_rate_limits.
const (
	Override VH = iota // only if the route has none
	Include
	Ignore
)

// PerRoute is a typed_per_filter_config for a ratelimit filter.
type PerRoute struct {
	Location
	// Off disables the filter. If it is false, it enables a filter that is off.
	Off    bool
	Domain string
	VH     VH
	// Limits replace all others, if there are any.
	Limits []*RateLimit
	// Empty: it only enables or disables the filter.
	Empty bool
}

// A RateLimit makes one descriptor.
type RateLimit struct {
	Location
	Stage   uint64
	Actions []Action
	// Limit is a fixed limit that goes with the descriptor, and LimitFrom the metadata that has
	// one. Nil and empty: neither.
	Limit     *window.Limit
	LimitFrom accesslog.Attribute
	Cost      Cost
	AtEnd     bool
	// DisableKey is the runtime key that disables it. Empty: none.
	DisableKey string
	// When are conditions of a mapping file. Envoy has none.
	When *Match
}

// A Cost is the hits of a descriptor.
type Cost struct {
	Location
	Set    bool
	Number uint64
	// From is the attribute that has the number. Empty: Number counts.
	From   accesslog.Attribute
	Refund bool
}

// A Kind says what an action does.
type Kind uint8

// The kinds of actions.
const (
	// Text: the entry has a fixed value, Value.
	Text Kind = iota
	// Format: the value is that of the parts, one after the other.
	Format
	// QueryParameter: the value is that of the parameter Name.
	QueryParameter
	// MaskedAddress: the value is the network of the client's address.
	MaskedAddress
	// HeaderMatch and QueryMatch: the value is Value if the matchers agree.
	HeaderMatch
	QueryMatch
	// AddressMatch: the value is that of the parts if the address is in Networks.
	AddressMatch
	// Metadata: the value is that of the part, else Value.
	Metadata
	// RouteMetadata: the value is in the metadata of the route at Path, else Value.
	RouteMetadata
	// SourceCluster and DestinationCluster are the names of clusters.
	SourceCluster
	DestinationCluster
	// Unsupported: Value says why. The descriptor is left out.
	Unsupported
)

// An Action makes one entry of a descriptor. Which fields count depends on the kind.
type Action struct {
	Location
	Kind         Kind
	Key          string
	Value        string
	Parts        []Part
	Name         string
	SkipIfAbsent bool
	V4, V6       int // bits of an address that count
	Expect       bool
	Headers      []Matcher
	Query        []Matcher
	Networks     []netip.Prefix
	Invert       bool
	Path         []string
}

// A Part is a text, or an attribute.
type Part struct {
	Text      string
	Attribute accesslog.Attribute // empty: Text counts
	// Most is how many bytes of the value count. Zero: all.
	Most int
}

// A PathKind says how a route matches paths.
type PathKind uint8

// The kinds of path matchers.
const (
	AnyPath PathKind = iota
	Prefix
	Exact
	Regex
	SeparatedPrefix
	Unknown // a matcher that is not supported
)

// A Match says which requests a route takes.
type Match struct {
	Location
	Kind    PathKind
	Path    string
	Fold    bool // the case of letters does not matter
	Headers []Matcher
	Query   []Matcher
	GRPC    bool
	// Fraction is true if only a part of the requests matches.
	Fraction bool
	// Unsupported names a condition that cannot be read from a log. Empty: there is none.
	Unsupported string
}

// A Test says how a matcher looks at a value.
type Test uint8

// The tests of matchers.
const (
	IsPresent Test = iota
	IsExact
	HasPrefix
	HasSuffix
	Contains
	IsRegex
	InRange
	IsOneOf // of Texts
)

// A Matcher looks at a header or a query parameter.
type Matcher struct {
	Location
	Name       string
	Test       Test
	Text       string
	Texts      []string
	Fold       bool
	Present    bool // what IsPresent expects
	Start, End int64
	Invert     bool
	// Empty: an absent value counts as an empty one.
	Empty bool
}
