// Package servers starts the real servers that tests talk to, on free ports of
// the loopback interface and for the time of one test.
//
// A server that is not installed skips the test and says what to install. Where
// the environment has CI=true the test fails instead, so that a run which is
// meant to prove something cannot pass by proving nothing.
//
// Redis, Envoy and RLS take the test and end their server with it. StartEnvoy and
// StartRLS do without a test, for programs that show something.
package servers
