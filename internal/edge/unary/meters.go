package unary

import "golang.org/x/net/http2"

// Meters count what connections do. Safe for concurrent use.
type Meters interface {
	// Opened and Closed count connections.
	Opened()
	Closed()
	// Reset counts a stream that was reset before it was answered, by the server or by
	// the client.
	Reset(byServer bool, code http2.ErrCode)
	// GoAway counts that the server has sent a GOAWAY on a connection or closed it. reason
	// is one of [Reasons]. One connection may be counted for both.
	GoAway(reason string)
}

// unmetered implements Meters and counts nothing.
type unmetered struct{}

func (unmetered) Opened()                   {}
func (unmetered) Closed()                   {}
func (unmetered) Reset(bool, http2.ErrCode) {}
func (unmetered) GoAway(string)             {}

// The reasons for which the server ends a connection.
const (
	reasonAge      = "age"      // MaxConnectionAge
	reasonDrain    = "drain"    // GracefulStop
	reasonSilent   = "silent"   // no answer to a keepalive PING
	reasonFlood    = "flood"    // too many frames that are not calls
	reasonPings    = "pings"    // PINGs more often than MinPingInterval
	reasonProtocol = "protocol" // a fault by RFC 9113, or no TLS
	reasonSlow     = "slow"     // answers left unread for WriteTimeout
	reasonTimeout  = "timeout"  // OpenTimeout
	reasonBug      = "bug"      // the server itself panicked
)

// Reasons are the values that [Meters.GoAway] is called with.
var Reasons = []string{
	reasonAge, reasonDrain, reasonSilent, reasonFlood, reasonPings, reasonProtocol, reasonSlow, reasonTimeout, reasonBug,
}
