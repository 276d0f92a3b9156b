package extauthz

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Result is the result of one request.
type Result int

// The results.
const (
	// Authenticated means that the credential belongs to a subject.
	Authenticated Result = iota
	// Anonymous means that the request has no credential, and the route needs none.
	Anonymous
	// Missing means that the request has no credential, but the route needs one.
	Missing
	// Malformed means that the credential is not a valid API key, or that there are
	// several.
	Malformed
	// Unknown means that the credential belongs to no subject, or was revoked.
	Unknown
	// Disabled means that the subject of the credential is disabled.
	Disabled
	// Ambiguous means that the request has credentials of two subjects.
	Ambiguous
	// Oversized means that the header of the request is too large.
	Oversized
	// Limited means that a limit denies the request.
	Limited
	// Unavailable means that the customer source could not find the subject.
	Unavailable
	// Undecided means that the store could not decide.
	Undecided
	// Misconfigured means that the context of the route is invalid.
	Misconfigured
)

// results has the name of each Result in metrics and metadata, and its answer. The body of
// Limited comes from the rule.
var results = [...]struct {
	name          string
	code          codes.Code
	status        int
	title, detail string
}{
	Authenticated: {"authenticated", codes.OK, http.StatusOK, "", ""},
	Anonymous:     {"anonymous", codes.OK, http.StatusOK, "", ""},
	Missing:       {"missing", codes.Unauthenticated, http.StatusUnauthorized, "Unauthorized", "This request needs an API key."},
	Malformed:     {"malformed", codes.Unauthenticated, http.StatusUnauthorized, "Unauthorized", "The API key is malformed, or there is more than one."},
	Unknown:       {"unknown", codes.Unauthenticated, http.StatusUnauthorized, "Unauthorized", "The API key is not valid."},
	Disabled:      {"disabled", codes.PermissionDenied, http.StatusForbidden, "Forbidden", "The subject of this API key is disabled."},
	Ambiguous:     {"ambiguous", codes.InvalidArgument, http.StatusBadRequest, "Bad Request", "The request has API keys of two subjects."},
	Oversized:     {"oversized", codes.InvalidArgument, http.StatusRequestHeaderFieldsTooLarge, "Request Header Fields Too Large", "The header of the request is too large."},
	Limited:       {"limited", codes.ResourceExhausted, http.StatusTooManyRequests, "", ""},
	Unavailable:   {"unavailable", codes.Unavailable, http.StatusServiceUnavailable, "Service Unavailable", "The API key cannot be checked now."},
	Undecided:     {"undecided", codes.Unavailable, http.StatusServiceUnavailable, "Service Unavailable", "The limits cannot be checked now."},
	Misconfigured: {"misconfigured", codes.Internal, http.StatusInternalServerError, "Internal Server Error", "The authorization of this route is misconfigured."},
}

// A Refusal describes the answer for a client whose request does not pass, for
// docs/reference/answers.md. The detail is empty if it depends on the rule.
type Refusal struct {
	Reason string
	Status int
	Detail string
}

// Refusals returns the answers of all results that do not pass.
func Refusals() []Refusal {
	var all []Refusal
	for _, r := range Results() {
		if !r.passes() {
			all = append(all, Refusal{results[r].name, results[r].status, results[r].detail})
		}
	}
	return all
}

// Results returns all results.
func Results() []Result {
	all := make([]Result, len(results))
	for i := range all {
		all[i] = Result(i)
	}
	return all
}

// String returns the name in metrics and metadata.
func (r Result) String() string { return results[r].name }

// passes reports whether the request passes.
func (r Result) passes() bool { return r <= Anonymous }

// failed reports whether no decision was possible.
func (r Result) failed() bool { return r >= Unavailable }
