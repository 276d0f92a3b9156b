package extauthz

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Result is what became of one request.
type Result int

// The results.
const (
	// Authenticated: the credential is a known subject's.
	Authenticated Result = iota
	// Anonymous: there is no credential, and the route needs none.
	Anonymous
	// Missing: there is no credential.
	Missing
	// Malformed: the credential cannot be one, or there are several.
	Malformed
	// Unknown: the credential is nobody's, or no longer.
	Unknown
	// Disabled: the credential's subject is not to be served.
	Disabled
	// Ambiguous: the request has credentials of two known subjects.
	Ambiguous
	// Oversized: the header of the request is larger than what is read.
	Oversized
	// Limited: a limit has no room.
	Limited
	// Unavailable: the source of tiers could not say whose the credential is.
	Unavailable
	// Undecided: the store could not decide.
	Undecided
	// Misconfigured: the context of the route says what cannot be understood.
	Misconfigured
)

// results say of each Result its name in metrics and metadata, and how it is
// answered. Limited requests have a body of their own.
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

// Results returns all results, for who counts them.
func Results() []Result {
	all := make([]Result, len(results))
	for i := range all {
		all[i] = Result(i)
	}
	return all
}

// String returns the name in metrics and metadata.
func (r Result) String() string { return results[r].name }

// passes reports whether the request goes on.
func (r Result) passes() bool { return r <= Anonymous }

// failed reports whether nobody could decide.
func (r Result) failed() bool { return r >= Unavailable }
