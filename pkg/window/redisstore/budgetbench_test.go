package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
	"github.com/slidegate/slidegate/pkg/window/windowtest/policytest"
	"github.com/slidegate/slidegate/test/servers"
)

// BenchmarkBudget measures what a plain hit, and a reservation with its settlement, cost Redis: microseconds of
// its processor and commands, those inside scripts included. They take turns, so only the ratio is of use on a
// busy machine. With others, each log has so many reservations of other streams.
func BenchmarkBudget(b *testing.B) {
	for _, others := range []int{0, 100, 10_000} {
		for _, p := range []window.Policy{window.Sliding, window.Fixed} {
			b.Run(fmt.Sprintf("%v/others=%d", p, others), func(b *testing.B) {
				client := newClient(b, servers.Redis(b))
				s := redisstore.New(client, redisstore.Options{})
				defer s.Close()
				keys := max(1000/(others+1), 1)
				limit := window.Limit{Hits: 1 << 31, Window: time.Hour, Policy: p}
				plain, budget := policytest.BudgetCalls(b, s, limit, keys, others)
				var spent [2]usage
				turns := 0
				for b.Loop() {
					for i, call := range []func(){plain, budget} {
						before := usageOf(b, client)
						for range 200 {
							call()
						}
						spent[i].add(usageOf(b, client), before)
					}
					turns += 200
				}
				b.ReportMetric(spent[0].cpu/float64(turns), "µs/plain")
				b.ReportMetric(spent[1].cpu/float64(turns), "µs/budget")
				b.ReportMetric(spent[1].cpu/spent[0].cpu, "ratio")
				b.ReportMetric(spent[0].commands/float64(turns), "commands/plain")
				b.ReportMetric(spent[1].commands/float64(turns), "commands/budget")
			})
		}
	}
}

// A usage is what a server has used.
type usage struct{ cpu, commands float64 }

func (u *usage) add(after, before usage) {
	u.cpu += after.cpu - before.cpu
	u.commands += after.commands - before.commands
}

var (
	usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)
	calls   = regexp.MustCompile(`cmdstat_(\w+):calls=([0-9]+)`)
)

// usageOf returns what a server has used so far. CPU is in microseconds.
func usageOf(b *testing.B, client *redis.Client) (u usage) {
	b.Helper()
	text, err := client.Info(b.Context(), "cpu", "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range usedCPU.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		u.cpu += 1e6 * n
	}
	for _, m := range calls.FindAllStringSubmatch(text, -1) {
		if m[1] != "info" {
			n, _ := strconv.ParseFloat(m[2], 64)
			u.commands += n
		}
	}
	return u
}
