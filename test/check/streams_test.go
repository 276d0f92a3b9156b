package check

import (
	"strings"

	"github.com/slidegate/slidegate/envoy"
)

// holding are rules with which budgets-1.36.yaml holds something.
var holding = service{rules: `
domain: edge
descriptors:
  - {key: budget, value: tokens, descriptors: [{key: api_key, rate_limit: {window: 1h, requests: 50000, budget: {reserve: 4096, hold: 10m}}}]}
`}

// ofFlight is a change of in-flight.yaml, and ofBudget one of budgets-1.36.yaml.
func ofFlight(patches ...patch) setup {
	return setup{base: "in-flight.yaml", rls: inFlight, patches: patches}
}

func ofBudget(find, put string) setup {
	return setup{base: "budgets-1.36.yaml", rls: holding, patches: []patch{{find: find, put: put}}}
}

// ofOneHop is a change of budgets-one-hop.yaml.
func ofOneHop(patches ...patch) setup {
	return setup{base: "budgets-one-hop.yaml", rls: budgets, patches: patches}
}

const (
	endFilter           = "          # This filter only reports the end"
	authorizationBehind = "          - name: envoy.filters.http.ext_authz\n            typed_config:\n"
	limitBehind         = "          - name: envoy.filters.http.ratelimit\n"
	streamID            = "                  - {key: x-slidegate-stream, value: \"%FILTER_STATE(slidegate.id:PLAIN)%\"}\n"
	endReason           = "                  - {key: x-rls-end, value: \"%RESPONSE_CODE_DETAILS%\"}\n"
	estimate            = `"%CEL('slidegate' in metadata`
	costAtEnd           = `"%DYNAMIC_METADATA(cost:units)%"`
)

// between returns a part of a file of envoy/.
func between(file, from, until string) string {
	data, err := envoy.Files.ReadFile(file)
	_, text, found := strings.Cut(string(data), from)
	text, _, ends := strings.Cut(text, until)
	if err != nil || !found || !ends {
		panic(file + " has no such part: " + from)
	}
	return from + text
}

// streamFaults are those of limits in flight and of budgets. rls check finds them in Envoy, and in the
// file.
var streamFaults = []fault{
	{row: 76, what: "no end", read: true, setup: ofFlight(patch{find: "                    # Reports to rls that the request", until: "                    # What the request has cost"}), want: []string{"error no-end everything"}},
	{row: 77, what: "ends behind the filter that asks", read: true, setup: ofFlight(
		patch{find: endFilter, until: limitBehind}, patch{find: trailers, put: between("in-flight.yaml", endFilter, limitBehind) + trailers}), want: []string{"error end-behind slidegate-end"}},
	{row: 77, what: "one filter that asks and reports ends", read: true, setup: ofFlight(
		patch{find: "                  slidegate-end:\n", until: "                    # Reports to rls that the request"}), want: []string{"error end-behind envoy.filters.http.ratelimit"}},
	{row: 78, what: "no id of the stream", read: true, setup: ofFlight(patch{find: streamID + endReason + "                  # For the log", put: endReason + "                  # For the log"}), want: []string{"error stream-not-named envoy.filters.http.ratelimit"}},
	{row: 78, what: "no reason of the end", read: true, setup: ofFlight(patch{find: endReason + "                  # An end is safe", put: "                  # An end is safe"}), want: []string{"error stream-not-named slidegate-end"}},
	{row: 77, what: "ends behind the authorization", read: true, setup: ofOneHop(
		patch{find: endFilter, until: authorizationBehind}, patch{find: trailers, put: between("budgets-one-hop.yaml", endFilter, authorizationBehind) + trailers}), want: []string{"error end-behind slidegate-end"}},
	{row: 78, what: "no id of the stream, one hop", read: true, setup: ofOneHop(patch{find: "                initial_metadata:\n                - {key: x-slidegate-stream", until: "                - {key: x-rls-cost", put: "                initial_metadata:\n"}), want: []string{"error stream-not-named envoy.filters.http.ext_authz"}},
	{row: 79, what: "an expression in the metadata of the call", read: true, setup: ofFlight(patch{find: endReason + "                  # An end is safe", put: endReason + "                  - {key: x-status, value: \"%CEL(response.code)%\"}\n                  # An end is safe"}), want: []string{"error cel-in-metadata slidegate-end"}},
	{row: 80, what: "the route removes the key", read: true, setup: ofFlight(patch{find: forward, put: forward + "                request_headers_to_remove: [X-Api-Key]\n"}), want: []string{"error removed-at-end everything"}},
	{row: 80, what: "the virtual host removes the key", read: true, setup: ofFlight(patch{find: anyHost, put: anyHost + "              request_headers_to_remove: [x-api-key]\n"}), want: []string{"error removed-at-end everything"}},
	{row: 81, what: "an estimate without a bound", read: true, setup: setup{base: "budgets-1.36.yaml", rls: holding, patches: []patch{{find: estimate, until: "\n                  slidegate-end:", put: `"%DYNAMIC_METADATA(slidegate:est)%"}`}}}, want: []string{"warning cost-unbounded everything"}},
	{row: 81, what: "an estimate with a default alone", read: true, setup: setup{base: "budgets-1.36.yaml", rls: holding, patches: []patch{{find: estimate, until: "\n                  slidegate-end:", put: `"%CEL('slidegate' in metadata.filter_metadata ? metadata.filter_metadata['slidegate']['est'] : 4096.0)%"}`}}}, want: []string{"warning cost-unbounded everything"}},
	{row: 82, what: "a cost that is made up", read: true, setup: ofBudget(costAtEnd, `"%CEL('cost' in metadata.filter_metadata ? metadata.filter_metadata['cost']['units'] : 0.0)%"`), want: []string{"warning cost-invented everything"}},
	{row: 83, what: "requests longer than hold", read: true, flags: "--rules $RULES", setup: ofFlight(patch{find: "max_stream_duration: 300s", put: "max_stream_duration: 301s"}), want: []string{"warning hold-short everything"}},
	{row: 83, what: "nothing bounds requests", read: true, flags: "--rules $RULES", setup: ofFlight(patch{find: "            max_stream_duration: 300s\n"}), want: []string{"warning hold-short everything"}},
	{row: 83, what: "a route whose requests are longer", read: true, flags: "--rules $RULES", setup: ofFlight(patch{find: forward, put: strings.Replace(forward, "timeout: 15s", "timeout: 15s, max_stream_duration: {max_stream_duration: 600s}", 1)}), want: []string{"warning hold-short everything"}},
	{row: 65, what: "reservations are repeated", read: true, setup: ofBudget("                  # No retry_policy: a repeated call", "                  retry_policy: {num_retries: 2, retry_on: unavailable}\n                  # No retry_policy: a repeated call"), want: []string{"warning calls-retried envoy.filters.http.ratelimit"}},
}
