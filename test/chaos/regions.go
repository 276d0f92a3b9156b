package main

import (
	"time"

	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
)

// far is a testbed of one region: its own Redis, and behind a long line the one that all regions
// share. on makes a fault of the line, and off removes it.
func far(on, off func(p *servers.Proxy)) func(t process.TB) *testbed {
	return func(t process.TB) *testbed {
		bed := proxied(on, off, farAway)(t)
		bed.near = redisURL(servers.StartRedis(t).Addr())
		return bed
	}
}

func regionScenarios() []scenario {
	return []scenario{
		{name: "region cut off", degrades: true, start: far(
			func(p *servers.Proxy) { p.Blackhole(true) }, func(p *servers.Proxy) { p.Blackhole(false) },
		)},
		{name: "region cut off, refused", degrades: true, start: far(
			func(p *servers.Proxy) {
				p.Refuse(true)
				p.CloseAll()
			}, func(p *servers.Proxy) { p.Refuse(false) },
		)},
		{name: "global store slow", degrades: true, start: far(
			func(p *servers.Proxy) { p.Distance(time.Second) }, func(p *servers.Proxy) { p.Distance(farAway) },
		)},
	}
}
