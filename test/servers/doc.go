// Package servers starts the servers that rls calls, on free ports of the loopback interface.
// They end with the test:
//
//   - StartRedis and StartRedisTLS start a single Redis.
//   - StartCluster starts a Cluster of six nodes, and StartSentinel a Sentinel set.
//   - StartPostgres starts PostgreSQL, StartTiers one with many customers in tiers that carry limits,
//     and StartCustomers an HTTP endpoint with customers.
//   - StartReference starts envoyproxy/ratelimit, which tests compare rls with.
//   - StartXDS and StartXDSTLS start an xDS server with rules.
//   - StartProxy starts a Proxy, which makes faults of a network on the way to a server.
//
// An Authority makes certificates. Every Redis has a user with all rights, whatever rights its
// other users have; see RedisServer.Do.
//
// SLIDEGATE_TEST_REDIS names another binary than redis-server. It must be Redis 6.2 or later,
// or a server with the same options. SLIDEGATE_TEST_REFERENCE names envoyproxy/ratelimit, which
// make ratelimit builds.
package servers
