// Package servers starts the real servers that tests talk to, on free ports of
// the loopback interface and for the time of one test.
//
// A server that is not installed skips the test and says what to install. Where
// the environment has CI=true the test fails instead, so that a run which is
// meant to prove something cannot pass by proving nothing.
//
// What takes a TB ends its server with the test. A program that shows or measures
// something gets a TB from Run, which turns a failure into an error; StartEnvoy,
// StartRLS and RunRedis do without one.
//
// SLIDEGATE_TEST_REDIS, SLIDEGATE_TEST_ENVOY and SLIDEGATE_TEST_RLS name other
// binaries than those in PATH.
package servers
