package unary

import "golang.org/x/net/http2"

// What frames cost that are not calls, and what pays for them. A client whose calls
// are answered sends a few: window updates, PINGs, a reset now and then.
const (
	mostTokens = 10_000
	refill     = 2_000 // tokens a second
	earned     = 4     // tokens for an answered call
	resetCost  = 10    // tokens for a fault for which the server resets a stream
	tinyData   = 64    // bytes: shorter DATA costs a token, unless it ends a call
	// streamsAToken is how many streams a frame may concern for each token that it
	// costs in addition to its own.
	streamsAToken = 16
	// bytesAToken is how much DATA a window must let out to pay for one of these tokens.
	bytesAToken = 64
)

// spend takes n tokens. If too few are left, it returns the error that ends the
// connection.
func (r *reader) spend(n int) error {
	if r.tokens -= n; r.tokens >= 0 {
		return nil
	}
	now := r.server.now()
	r.tokens = min(r.tokens+int(r.earned.Swap(0))+int((now-r.filled).Seconds()*refill), mostTokens)
	r.filled = now
	if r.tokens < 0 {
		return connError{http2.ErrCodeEnhanceYourCalm, reasonFlood, "the client sends too many frames that are not calls"}
	}
	return nil
}
