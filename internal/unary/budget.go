package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// What frames cost that are no calls, and what pays for them. A client whose calls
// are answered sends a few: window updates, PINGs, a reset now and then.
const (
	burst     = 10_000 // tokens
	refill    = 2_000  // tokens a second
	earned    = 4      // tokens for a call that was answered
	resetCost = 10     // for what makes the server reset a stream
	tinyData  = 64     // bytes: DATA below that costs a token, unless it ends a call
	// streamsAToken is how many streams a frame may concern for each token that it
	// costs beside its own.
	streamsAToken = 16
	// bytesAToken is how much DATA a window has to let out to pay for one of these.
	bytesAToken = 64
	// packedAToken is how many bytes may come out of a compressed message for each
	// token.
	packedAToken = 16 << 10
)

// A budget bounds the frames of one connection that are no calls. The reader spends
// it.
type budget struct {
	tokens int
	at     time.Duration // when it was filled last
	gained int           // by answers, not in tokens yet; mu of the connection guards it
}

// spend takes n tokens. It is an error, and the end of the connection, if there are
// not as many.
func (b *budget) spend(c *conn, n int) error {
	if b.tokens -= n; b.tokens >= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return b.fill(c)
}

// spendLocked is spend where mu is held.
func (b *budget) spendLocked(c *conn, n int) error {
	if b.tokens -= n; b.tokens >= 0 {
		return nil
	}
	return b.fill(c)
}

func (b *budget) fill(c *conn) error {
	now := c.server.now()
	b.tokens = min(b.tokens+b.gained+int((now-b.at).Seconds()*refill), burst)
	b.gained, b.at = 0, now
	if b.tokens < 0 {
		return connError{http2.ErrCodeEnhanceYourCalm, reasonFlood, "too many frames that are no calls"}
	}
	return nil
}
