// Package edge starts rls, the proxies in front of it, and Chromium as a client, until a test
// ends. The proxies are Envoy, nginx and Caddy. All use free ports of the loopback interface.
//
// The test or the environment chooses the way to rls: its transport, and TCP, a unix
// socket or TLS (SLIDEGATE_TEST_TRANSPORT, SLIDEGATE_TEST_LISTEN; see Way). A test
// that calls RLSServer.Dial or RLSServer.Connect works with every way.
//
// SLIDEGATE_TEST_ENVOY and SLIDEGATE_TEST_RLS name other binaries than the usual ones.
package edge
