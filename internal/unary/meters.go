package unary

import "golang.org/x/net/http2"

// Meters count what connections do. Safe for concurrent use.
type Meters interface {
	// Opened and Closed count connections.
	Opened()
	Closed()
	// Traffic counts what one connection has done since the last time.
	Traffic(Traffic)
	// Reset counts a stream that was reset before it was answered, by the server or by
	// the client.
	Reset(byServer bool, code http2.ErrCode)
	// GoAway counts that the server has told a connection to go, or closed it, by why:
	// one of [Reasons]. The same one may be told first and closed later.
	GoAway(reason string)
}

// Traffic is what a connection has done.
type Traffic struct {
	Streams       int // opened
	Read, Written int // bytes, what TLS adds not counted
}

// unmetered is a Meters that counts nothing.
type unmetered struct{}

func (unmetered) Opened()                   {}
func (unmetered) Closed()                   {}
func (unmetered) Traffic(Traffic)           {}
func (unmetered) Reset(bool, http2.ErrCode) {}
func (unmetered) GoAway(string)             {}

// Why the server ends a connection.
const (
	reasonAge      = "age"      // MaxConnectionAge
	reasonIdle     = "idle"     // MaxConnectionIdle
	reasonDrain    = "drain"    // GracefulStop
	reasonSilent   = "silent"   // no answer to a keepalive PING
	reasonFlood    = "flood"    // too many frames that are no calls
	reasonPings    = "pings"    // PINGs more often than MinPingInterval
	reasonProtocol = "protocol" // not HTTP/2 as RFC 9113 has it, or not TLS
	reasonSlow     = "slow"     // answers left unread for WriteTimeout
	reasonTimeout  = "timeout"  // OpenTimeout
	reasonBug      = "bug"      // the server itself panicked
)

// Reasons are what [Meters.GoAway] may be told.
var Reasons = []string{
	reasonAge, reasonIdle, reasonDrain, reasonSilent, reasonFlood, reasonPings, reasonProtocol, reasonSlow, reasonTimeout, reasonBug,
}
