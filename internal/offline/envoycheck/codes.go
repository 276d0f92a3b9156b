package envoycheck

import "fmt"

// A Severity says how bad a finding is. The values are those of --json.
type Severity string

// The severities, the worst first.
const (
	// Error: requests pass without a limit, or clients choose what they are limited by.
	Error Severity = "error"
	// Warning: this happens in some cases, or may happen later.
	Warning Severity = "warning"
	// Note: worth knowing, and right in many configurations.
	Note Severity = "note"
)

// A Code names a kind of finding. It does not change between releases, so scripts can rely on it.
type Code string

// The codes of listeners and routes. The numbers are those of the cases in the tests.
const (
	NoFilter            Code = "no-filter"               // 1, 2, 3
	TCPListener         Code = "tcp-listener"            // 4
	PathChangedBefore   Code = "path-changed-before"     // 6
	WrongDomain         Code = "wrong-domain"            // 7
	WrongRouteDomain    Code = "wrong-route-domain"      // 8
	NoDescriptor        Code = "no-descriptor"           // 9
	OtherKeys           Code = "other-keys"              // 10
	OtherValue          Code = "other-value"             // 11
	OtherOrder          Code = "other-order"             // 12
	EntryTooMany        Code = "entry-too-many"          // 13
	EntryTooFew         Code = "entry-too-few"           // 14
	HeaderNeeded        Code = "header-needed"           // 15
	EntrySkipped        Code = "entry-skipped"           // 16
	RuleNotReached      Code = "rule-not-reached"        // 17
	RouteHidden         Code = "route-hidden"            // 18
	NothingLimits       Code = "nothing-limits"          // 19
	Observed            Code = "observed"                // 20
	HostLimitsHidden    Code = "host-limits-hidden"      // 21
	HostLimitsIgnored   Code = "host-limits-ignored"     // 22
	RouteLimitsHidden   Code = "route-limits-hidden"     // 21, of a route
	NoFilterOfStage     Code = "no-filter-of-stage"      // 23
	RateLimitDisabled   Code = "rate-limit-disabled"     // 24
	NotEnabled          Code = "not-enabled"             // 25, 27
	NotEnforced         Code = "not-enforced"            // 26, 28
	AuthorizationAfter  Code = "authorization-after"     // 49
	OtherMetadata       Code = "other-metadata"          // 50
	AuthorizationOff    Code = "authorization-off"       // 51
	CredentialRemoved   Code = "credential-removed"      //nolint:gosec // 54
	FilterOff           Code = "filter-off"              // 55
	FilterOffByDefault  Code = "filter-off-by-default"   // 56
	ClientHeader        Code = "client-header"           // 57, 58
	HeaderRemoved       Code = "header-removed"          // 59
	ClientAddress       Code = "client-address"          // 60
	TrustedHops         Code = "trusted-hops"            // 61
	PathNotNormalised   Code = "path-not-normalised"     // 62
	OnlyAtEnd           Code = "only-at-end"             // 66
	CostNotSent         Code = "cost-not-sent"           // 67
	ClientCost          Code = "client-cost"             // 68
	NoDomain            Code = "authorization-no-domain" // 69
	DescriptorNoRule    Code = "descriptor-without-rule" // a note
	AuthorizationUnread Code = "authorization-not-read"  // 70, 71: Envoy hides the values
)

// The codes of calls, clusters and the process.
const (
	TimeoutShort       Code = "timeout-short"       // 29
	TimeoutDefault     Code = "timeout-default"     // 30
	TimeoutZero        Code = "timeout-zero"        // 31
	ClusterHTTP1       Code = "cluster-http1"       // 32
	OtherAddress       Code = "other-address"       // 33, 35
	EndpointOut        Code = "endpoint-out"        // 34, 45, 46
	TLSMismatch        Code = "tls-mismatch"        // 36
	TLSNotVerified     Code = "tls-not-verified"    // 37
	CertificateExpires Code = "certificate-expires" // 38
	NoCluster          Code = "no-cluster"          // 39
	NoEndpoint         Code = "no-endpoint"         // 40
	BreakerDefault     Code = "breaker-default"     // 41
	BreakerFull        Code = "breaker-full"        // 42
	CallsQueue         Code = "calls-queue"         // 43
	OutlierDetection   Code = "outlier-detection"   // 44
	NoAnswers          Code = "no-answers"          // 47
	CallsTimeOut       Code = "calls-time-out"      // 48
	AuthorizationOpen  Code = "authorization-open"  // 52
	CredentialNotSent  Code = "credential-not-sent" //nolint:gosec // 53
	DeniedStatus       Code = "denied-status"       // 63
	RequestType        Code = "request-type"        // 64
	CallsRetried       Code = "calls-retried"       // 65
	DenialsUnseen      Code = "denials-unseen"      // 72
	AdminExposed       Code = "admin-exposed"       // 73
	ListenerRejected   Code = "listener-rejected"   // 74
	RoutesRejected     Code = "routes-rejected"     // 75
)

// severities has the codes whose findings are no errors. A check may say otherwise.
var severities = map[Code]Severity{
	TCPListener: Warning, PathChangedBefore: Warning, HeaderNeeded: Warning, EntrySkipped: Warning, Observed: Warning,
	HostLimitsHidden: Warning, RouteLimitsHidden: Warning, HostLimitsIgnored: Warning, FilterOffByDefault: Warning, TrustedHops: Warning,
	PathNotNormalised: Warning, ClientCost: Warning, DescriptorNoRule: Note, AuthorizationUnread: Note,
	TimeoutDefault: Warning, TLSNotVerified: Warning, CertificateExpires: Warning, BreakerDefault: Warning, BreakerFull: Warning,
	CallsQueue: Warning, OutlierDetection: Warning, AuthorizationOpen: Warning, DeniedStatus: Warning, RequestType: Warning,
	CallsRetried: Warning, DenialsUnseen: Warning, AdminExposed: Warning,
}

// A Finding is one thing that is wrong, or worth knowing.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Where names the listener, the route, the cluster or the rule with its file and line.
	Where   string `json:"where"`
	Message string `json:"message"`
	// Passes says what passes without a limit. Empty: nothing.
	Passes string `json:"passes"`
	// Fix says what to do.
	Fix string `json:"fix"`
}

// finding returns a finding of the severity of its code. The rest is its message.
func finding(code Code, where, passes, fix, format string, args ...any) Finding {
	return Finding{Code: code, Where: where, Passes: passes, Fix: fix, Message: fmt.Sprintf(format, args...)}
}
