package envoycheck

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

// A kind has what the findings of one code have in common: a Finding without Where and Message. A check
// may say otherwise.
type kind struct {
	severity    Severity
	code        Code
	passes, fix string
}

// What passes.
const (
	every    = "every request"
	ofRoute  = "every request of the route"
	notAsked = "every request, if failure_mode_deny is off" // rls is not asked, or does not answer
	forged   = "clients that send another address with each request"
	old      = "what the old version lets pass"
)

// What to do in more than one case.
const (
	alike       = "Change the descriptor of the route or the path of the rule, so that they are the same."
	setTimeout  = "Set timeout: 0.05s on the filter. With Envoy Gateway, set rateLimit.timeout: 50ms in its configuration."
	lookThere   = "Look at the log and the health of rls there, and at the network between."
	moveToRoute = "Move the list to typed_per_filter_config of the route."
	toWhole     = "Set it to 100 %."
)

// The kinds of listeners and routes.
var (
	noFilter           = kind{Error, "no-filter", every, "Add the ratelimit filter to http_filters, as rls envoy-config prints it."}
	tcpListener        = kind{Warning, "tcp-listener", "every request over this listener", "Close the listener to clients, or forward with an HTTP connection manager."}
	pathChangedBefore  = kind{Warning, "path-changed-before", "requests whose path the filter changes may miss limits of their new path", "Move the change of the path behind the ratelimit filter, or into early_header_mutation_extensions."}
	wrongDomain        = kind{Error, "wrong-domain", every, "Give the filter a domain of the rules, or load rules for this domain."}
	wrongRouteDomain   = kind{Error, "wrong-route-domain", ofRoute, "Correct the domain of the route, or load rules for this domain."}
	noDescriptor       = kind{Error, "no-descriptor", ofRoute, "Add rate_limits to the route. Envoy merges no lists: each one is complete."}
	otherKeys          = kind{Error, "other-keys", "", alike}
	otherValue         = kind{Error, "other-value", "", alike}
	otherOrder         = kind{Error, "other-order", "", alike}
	entryTooMany       = kind{Error, "entry-too-many", "", alike}
	entryTooFew        = kind{Error, "entry-too-few", "", alike}
	headerNeeded       = kind{Warning, "header-needed", "", "Add a descriptor that each request has, such as remote_address."}
	entrySkipped       = kind{Warning, "entry-skipped", "", "Add a rule for it, or a descriptor that each request has."}
	ruleNotReached     = kind{Error, "rule-not-reached", "requests that only this rule limits", "Add the descriptor to the routes that the rule is for, or remove the rule."}
	routeHidden        = kind{Error, "route-hidden", "requests that only this route limits", "Put the narrower route first."}
	nothingLimits      = kind{Error, "nothing-limits", ofRoute, "Add a rule for one of its descriptors, or enforce one that only observes."}
	observedRule       = kind{Warning, "observed", "the observed part", "Enforce the rule when its numbers are right."}
	hostLimitsHidden   = kind{Warning, "host-limits-hidden", "", "Repeat them on the route, or set vh_rate_limits: INCLUDE."}
	routeLimitsHidden  = kind{Warning, "route-limits-hidden", "", moveToRoute}
	hostLimitsIgnored  = kind{Warning, "host-limits-ignored", "", "Set vh_rate_limits: INCLUDE."}
	noFilterOfStage    = kind{Error, "no-filter-of-stage", "requests that only this rate limit limits", "Remove the stage, or add a filter with it."}
	rateLimitDisabled  = kind{Error, "rate-limit-disabled", "", "Set the key to 100."}
	notEnabled         = kind{Error, "not-enabled", "the requests that it does not ask about", toWhole}
	notEnforced        = kind{Error, "not-enforced", "requests over their limit", toWhole}
	authorizationAfter = kind{Error, "authorization-after", "", "Put ext_authz before the ratelimit filter."}
	otherMetadata      = kind{Error, "other-metadata", "", "Correct the key or the path of metadata_key."}
	notCarried         = kind{Warning, "limit-not-carried", "requests over the limit that their tier should have", "Add the limit to the tiers, or correct the key of metadata_key."}
	authorizationOff   = kind{Error, "authorization-off", "", "Enable ext_authz on the route, with anonymous in its context_extensions if requests need no key."}
	credentialRemoved  = kind{Error, "credential-removed", "", "Use the metadata subject of ext_authz in place of the header."}
	filterOff          = kind{Error, "filter-off", ofRoute, "Remove disabled: true, or enable the filter in typed_per_filter_config of the route."}
	filterOffByDefault = kind{Warning, "filter-off-by-default", "requests of all other routes", "Remove disabled: true, or enable the filter on each route with limits."}
	clientHeader       = kind{Error, "client-header", "clients that choose another value", "Remove the header in early_header_mutation_extensions, or use metadata of ext_authz."}
	headerRemoved      = kind{Error, "header-removed", "", "Remove the early mutation, or take the value from elsewhere."}
	clientAddress      = kind{Error, "client-address", forged, "Set use_remote_address: true."}
	trustedHops        = kind{Warning, "trusted-hops", forged, "Set xff_num_trusted_hops to the number of the proxies. If it is right, say it in --hops."}
	pathNotNormalised  = kind{Warning, "path-not-normalised", "requests with such a path miss the limits of their route", ""}
	onlyAtEnd          = kind{Error, "only-at-end", "", "Add the same descriptor without apply_on_stream_done, with hits_addend {number: 0} if it is to cost nothing."}
	costNotSent        = kind{Error, "cost-not-sent", "the cost is 1", moveToRoute}
	clientCost         = kind{Warning, "client-cost", "requests without the header", "Take the cost from what your application says, or from a number."}
	noEnd              = kind{Error, "no-end", "", "Add slidegate=end with apply_on_stream_done to the route, by a filter of its own, as rls envoy-config --shape in-flight or budgets prints it."}
	endBehind          = kind{Error, "end-behind", "", "Put the filter that reports ends before all filters that ask rls."}
	streamNotNamed     = kind{Error, "stream-not-named", "", "Send x-slidegate-stream from both filters, and x-rls-end from the one that reports ends."}
	removedAtEnd       = kind{Error, "removed-at-end", "", "Copy the header with header_to_metadata, and take the entry from the metadata."}
	costUnbounded      = kind{Warning, "cost-unbounded", "requests with another cost", "Write a default and a bound with %CEL()%, as rls envoy-config --shape budgets-1.36 prints it."}
	costInvented       = kind{Warning, "cost-invented", "", "Leave the default out: on_unknown of the budget decides."}
	holdShort          = kind{Warning, "hold-short", "", "Set max_stream_duration, and hold above it."}
	noDomain           = kind{Error, "authorization-no-domain", "every request with a valid key", "Add domain and descriptors to context_extensions, as rls envoy-config --shape one-hop prints them."}
	descriptorNoRule   = kind{Note, "descriptor-without-rule", "", "If it is to limit, add a rule."}
)

// The kinds of calls, clusters and the process.
var (
	timeoutShort       = kind{Error, "timeout-short", "every request while the store is slow, whatever on_store_error says", setTimeout}
	timeoutDefault     = kind{Warning, "timeout-default", "some requests while the store or the network is slow", setTimeout}
	timeoutZero        = kind{Error, "timeout-zero", "every request, up to Envoy 1.37", setTimeout}
	clusterHTTP1       = kind{Error, "cluster-http1", notAsked, "Add http2_protocol_options to explicit_http_config."}
	otherAddress       = kind{Error, "other-address", notAsked, "Call one of the addresses of grpc.address."}
	endpointOut        = kind{Error, "endpoint-out", notAsked, lookThere}
	endpointEjected    = kind{Warning, "endpoint-out", "", "Remove outlier_detection."}
	tlsMismatch        = kind{Error, "tls-mismatch", notAsked, "Remove the transport_socket, or set grpc.tls in rls."}
	tlsNotVerified     = kind{Warning, "tls-not-verified", "", "Add a validation_context with trusted_ca and a name."}
	certificateExpires = kind{Warning, "certificate-expires", "every request after that day, if failure_mode_deny is off", "Renew the certificate. Envoy reads the file again only at its start, or with SDS."}
	noCluster          = kind{Error, "no-cluster", notAsked, "Name the cluster of rls in the filter, or add the cluster."}
	noEndpoint         = kind{Error, "no-endpoint", notAsked, "Add the address of rls. If it is a name, check that it resolves."}
	breakerDefault     = kind{Warning, "breaker-default", "requests beyond so many calls at a time", "Set max_requests: 16384 in circuit_breakers."}
	breakerFull        = kind{Warning, "breaker-full", "", "Raise max_requests and max_pending_requests in circuit_breakers, and find out why rls was slow."}
	callsQueue         = kind{Warning, "calls-queue", "requests whose call waits too long", "Remove max_concurrent_streams."}
	outlierDetection   = kind{Warning, "outlier-detection", "requests while rls is ejected", "Remove outlier_detection. Health checks find an instance that is gone."}
	noAnswers          = kind{Error, "no-answers", "", "Look at the cluster of rls, at the log of rls, and at the network between."}
	callsTimeOut       = kind{Error, "calls-time-out", "", "Look at the log of rls, at its CPU, and at the times of its store."}
	authorizationOpen  = kind{Warning, "authorization-open", "requests without a subject while rls does not answer", "Set failure_mode_allow: false."}
	credentialNotSent  = kind{Error, "credential-not-sent", "", "Add the header of the credential to allowed_headers."}
	deniedStatus       = kind{Warning, "denied-status", "", "Remove rate_limited_status."}
	grpcForm           = kind{Warning, "grpc-form", "", "Set rate_limited_as_resource_exhausted: true on the filter."}
	requestType        = kind{Warning, "request-type", "all other requests", "Remove request_type."}
	callsRetried       = kind{Warning, "calls-retried", "", "Remove retry_policy."}
	celInMetadata      = kind{Error, "cel-in-metadata", "", "Write the expression into hits_addend, or its value into dynamic metadata."}
	envoyCrashes       = kind{Warning, "envoy-crashes", "", "Run Envoy 1.36.5, 1.37.1 or a later version."}
	denialsUnseen      = kind{Warning, "denials-unseen", "", "Find out which other Envoy calls this rls, or why its answers come too late."}
	adminExposed       = kind{Warning, "admin-exposed", "", "Open it on 127.0.0.1 only."}
	listenerRejected   = kind{Error, "listener-rejected", old, "Repair what the message names."}
	routesRejected     = kind{Error, "routes-rejected", old, "Look at Envoy's log for the reason."}
	probePassed        = kind{Error, "probe-passed", ofRoute, "Repair what the other findings name of this route, and probe again."}
	notProbed          = kind{Error, "not-probed", "", "Name the listener in --listener, paths of its routes in --probe-path, or the header of keys in --probe-header."}
	contextWrong       = kind{Error, "context-wrong", ofRoute, "Correct the context_extensions of the route."}
)
