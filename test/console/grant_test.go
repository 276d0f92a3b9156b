package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/servers"
)

// TestGrant goes the way of a person who is asked to let a customer through until six: from a link to
// the page of the customer, by what the page says. Two instances share a Redis, and one of them denies.
func TestGrant(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	secret := filepath.Join(t.TempDir(), "peers")
	if err := os.WriteFile(secret, []byte(strings.Repeat("planted", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *edge.RLSServer {
		return service(t, rules, tiers, map[string]string{
			"SLIDEGATE_STORE_TYPE": "redis", "SLIDEGATE_STORE_REDIS_URL": "redis://" + redis.Addr(),
			"SLIDEGATE_ADMIN_ADDRESS": "0.0.0.0:0", "SLIDEGATE_ADMIN_PEERS_KEY_FILE": secret,
		})
	}
	one, other := start(), start()
	ask(t, other, 8, "api_key", knownKey)
	b := open(t, "http://127.0.0.1"+one.Admin()[strings.LastIndex(one.Admin(), ":"):])
	b.do(call(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	b.load("/subject?id=acme")
	b.fill("#token", actToken)
	b.send(".login form button")
	b.text(".headline", "Denied now by per-key")
	b.text(".verdict", ": 3 times, last ") // the other instance denied them

	b.until(`document.querySelector("#grant-rule").value === "per-key" && document.querySelector("#grant-amount").value === "2"`)
	b.everyLook("a page with the form of a grant")
	b.text("#grant-help", "18:00 here is 12:30 in UTC.")
	b.fill("#grant-until", "18:00")
	b.fill("#grant-reason", "Ticket 8")
	b.send(".acts form .primary")
	b.text(".headline", "Passes now")
	b.text(".granted", "per-key ×2 until")
	b.text(".granted", "18:00:00")
	if ask(t, one, 1, "api_key", knownKey) != 1 {
		t.Error("the instance that granted denies")
	}
	for start := time.Now(); ask(t, other, 1, "api_key", knownKey) == 0; time.Sleep(period) {
		if time.Since(start) > patience {
			t.Fatal("the other instance denies")
		}
	}

	b.page("/audit")
	b.text(".entry", "acme")
	b.text(".granted", "Ticket 8by alice")
	b.everyLook("/audit with a grant")
	b.send(".granted [name=revoke]")
	b.text(".headline", "Denied now by per-key")
	b.hides()
}
