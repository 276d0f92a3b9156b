// Package tiertest is the conformance suite of [tier.Source]. Every source runs it
// against a real server.
//
//	func TestSource(t *testing.T) {
//		tiertest.Run(t, func(t *testing.T) tiertest.Fixture {
//			...
//		})
//	}
//
// It looks up subjects of all kinds by digest and by id, changes and removes them, and
// replaces them with malformed records. It stops, freezes and starts the server. A source must
// never return one subject's record for another key, and must never report a key as unknown
// because of an error. A source that is a [tier.Watcher] must report each change, and only
// when a lookup sees it. After its source is closed, no goroutine of a test may be left.
//
// No test depends on the speed of a source. A test fails after a minute without the
// expected event.
package tiertest
