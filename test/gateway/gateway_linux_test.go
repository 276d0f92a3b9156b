package gateway

import (
	"testing"

	"github.com/slidegate/slidegate/test/servers"
)

const ok, denied = 200, 429

// A stack is everything of a test.
type stack struct {
	*controlPlane
	pod *pod
}

// start starts Redis, the pod of the rate-limit service, and Envoy Gateway, as in a cluster.
func start(t *testing.T, rules string) stack {
	t.Helper()
	// The pod reaches only what listens on the address of the node. No other network does.
	redis := servers.StartRedis(t, "--bind", "0.0.0.0", "--protected-mode", "no")
	address := "redis.redis.svc" + redis.Addr()[len("127.0.0.1"):]
	e := newControlPlane(t, address)
	p := newPod(t, address)
	mountCertificates(t, p.root+"/certs", e.certificates("envoy-rate-limit"))
	p.start()
	if rules != "" {
		e.policy(rules)
	}
	e.start()
	return stack{e, p}
}

// perUser is a rule: so many requests an hour for each value of a header.
const perUser3 = `{clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}], limit: {requests: 3, unit: Hour}}`

func TestLimit(t *testing.T) {
	s := start(t, perUser3)
	s.limited("3, 3;w=3600")
	s.want("alice", ok, ok, ok, denied, denied)
	s.want("bob", ok, ok, ok, denied)
}
