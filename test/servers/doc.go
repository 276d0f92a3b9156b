// Package servers starts the real servers that tests talk to, on free ports of
// the loopback interface and for the time of one test.
//
// A server that is not installed skips the test and says what to install. Where
// the environment has CI=true the test fails instead, so that a run which is
// meant to prove something cannot pass by proving nothing.
//
// There is a single Redis (StartRedis, StartRedisTLS), a Cluster of six nodes
// (StartCluster), a Sentinel set (StartSentinel), and a Proxy that does to the
// connections of one server what networks do (StartProxy); PostgreSQL
// (StartPostgres); an endpoint that knows customers (StartCustomers); Envoy,
// Nginx and Caddy; and RLS. Every Redis obeys an administrator, whatever its other users may
// do; see RedisServer.Do.
//
// What takes a TB ends its server with the test. A program that shows or measures
// something gets a TB from Run, which turns a failure into an error; StartEnvoy,
// StartRLS and RunRedis do without one.
//
// The rls of a test is called the way that the test says, or that the environment
// does (SLIDEGATE_TEST_TRANSPORT, SLIDEGATE_TEST_LISTEN; see Way), and tests need not
// know which: RLSServer.Dial and EnvoyOptions go along.
//
// SLIDEGATE_TEST_REDIS, SLIDEGATE_TEST_ENVOY and SLIDEGATE_TEST_RLS name other
// binaries than the usual ones. Redis is 6.2 or later, or something that takes
// the same options.
package servers
