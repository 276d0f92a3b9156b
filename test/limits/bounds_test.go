package limits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/stack"
)

// TestManyDescriptors proves that a request of many descriptors is limited through an Envoy whose
// failure mode is the default, which lets a request pass after an error. A client cannot make its
// request too large for its limits either.
func TestManyDescriptors(t *testing.T) {
	stack.EachStore(t, func(t *testing.T, settings map[string]string) {
		const few, many, copies = 49, 128, 20
		actions := func(n int, key string) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "                    - actions: [{generic_key: {descriptor_key: %s, descriptor_value: \"%d\"}}]\n", key, i)
			}
			return b.String()
		}
		first := func(route string) string {
			return "                    - actions:\n                      - generic_key: {descriptor_key: route, descriptor_value: " + route + "}\n"
		}
		big := strings.Repeat("                    - actions: [{request_headers: {header_name: x-big, descriptor_key: big}}]\n", copies)
		s := stack.Setup{
			Rules: `domain: edge
descriptors:
  - key: few
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: big
    rate_limit: {unit: day, requests_per_unit: 1000}
`,
			Env: settings,
			Change: map[string]string{
				first("search"): actions(many, "many") + first("search"),
				first("login"):  actions(few, "few") + big + first("login"),
			},
		}.Start(t)
		c := s.From("127.0.0.1")
		c.Want(429, 2, "/login", "x-big", strings.Repeat("v", 55_000)) // more than the bound of a message
		for _, path := range []string{"/search", "/login"} {
			c.Want(200, 1, path)
			c.Want(429, 2, path)
		}
		s.WantAllDecided()
	})
}
