package rules

import (
	"slices"
	"time"
)

// OnStoreError is the answer to a request while the store cannot decide.
type OnStoreError uint8

const (
	// StoreErrorUnset leaves the choice to the default of the rules; see
	// [Rules.SetOnStoreError].
	StoreErrorUnset OnStoreError = iota
	// StoreErrorAllow lets the request pass.
	StoreErrorAllow
	// StoreErrorDeny refuses the request.
	StoreErrorDeny
	// StoreErrorLocal decides by logs in the memory of this process.
	StoreErrorLocal
	// StoreErrorReported makes the adapter report an error to Envoy, whose own setting
	// failure_mode_deny decides.
	StoreErrorReported
)

var storeErrors = [...]string{
	StoreErrorUnset: "", StoreErrorAllow: "allow", StoreErrorDeny: "deny", StoreErrorLocal: "local", StoreErrorReported: "report",
}

// String returns the choice as rules files and settings write it. It returns an empty
// text for StoreErrorUnset.
func (o OnStoreError) String() string { return storeErrors[o] }

// ParseOnStoreError parses what String returns. ok is false for any other text, and for
// an empty one.
func ParseOnStoreError(text string) (o OnStoreError, ok bool) {
	i := slices.Index(storeErrors[:], text)
	return OnStoreError(max(i, 0)), i > 0
}

// StoreErrorRetry is the Retry-After of StoreErrorDeny. It is a guess, because the end of an
// outage is unknown.
const StoreErrorRetry = time.Second
