// Package tiertest is the conformance suite of [tier.Source]: what its contract
// says, as tests that every source runs against a real server.
//
//	func TestSource(t *testing.T) {
//		tiertest.Run(t, func(t *testing.T) tiertest.Fixture {
//			...
//		})
//	}
//
// It asks for subjects of all kinds by digest and by id, changes and removes them,
// puts rubbish in their place, and stops, freezes and starts the server. What a
// source must never do is to give one subject's record for another's, or to take
// trouble for the answer that nobody has a key: customers would be unknown then. A
// source that is a [tier.Watcher] must tell of each change, and only when a lookup
// sees it. When a test has closed its source, no goroutine may be left.
//
// Nothing here depends on how fast a source is. A minute is what something that
// never comes takes to fail.
package tiertest
