// Package edge starts rls and what stands in front of it, for the time of one test:
// Envoy, nginx and Caddy, and Chromium as a client. All use free ports of the
// loopback interface.
//
// The test or the environment chooses the way to rls: its transport, and TCP, a unix
// socket or TLS (SLIDEGATE_TEST_TRANSPORT, SLIDEGATE_TEST_LISTEN; see Way). A test
// that calls RLSServer.Dial or RLSServer.Connect works with every way.
//
// SLIDEGATE_TEST_ENVOY and SLIDEGATE_TEST_RLS name other binaries than the usual ones.
package edge
