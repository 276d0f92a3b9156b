package daemon

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

func (p *process) openPeers(host string) {
	l := p.network.listeners.admin
	if p.settings.Admin.PeersKey == "" || l == nil || p.settings.DropIn.Pages {
		return
	}
	self := addressHere(l.Addr(), p.settings.Store.Redis.URL)
	if self == nil {
		p.logs.main.Warn("this instance publishes no address for the consoles of the others: admin.address is on loopback, or is on all addresses while Redis is a unix socket; set admin.address to an address that the others reach")
		self = func() string { return "" }
	}
	region := p.store.redis.scopes[0]
	region.Publish(self)
	p.operators.peers = peers.New(peers.Options{
		Secret: string(p.settings.Admin.PeersKey.Reveal()), Name: host, Self: self, Log: p.logs.rare,
		Others: func() ([]string, int) {
			o := region.Others()
			return o.Addresses, o.More
		},
	})
}

// addressHere returns a function that returns the address at which others reach a listener, or an empty
// text while that is not known. On all addresses, it is the one from which this machine sends to Redis.
// Nil: there is none.
func addressHere(listener net.Addr, redis settings.RedisURL) func() string {
	at, err := netip.ParseAddrPort(listener.String())
	ip := at.Addr().Unmap()
	if err != nil || ip.IsLoopback() || ip.IsUnspecified() && len(redis.Addresses) == 0 {
		return nil
	}
	var mu sync.Mutex
	known := !ip.IsUnspecified()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		if !known {
			if ip, known = sender(redis.Addresses[0]); !known {
				return ""
			}
		}
		return netip.AddrPortFrom(ip, at.Port()).String()
	}
}

// sender returns the address from which this machine sends to another one. It sends nothing.
func sender(to string) (from netip.Addr, ok bool) {
	c, err := (&net.Dialer{Timeout: time.Second}).Dial("udp", to) //nolint:noctx // it has a timeout
	if err != nil {
		return from, false
	}
	defer func() { _ = c.Close() }() // nothing was sent
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr().Unmap(), err == nil
}
