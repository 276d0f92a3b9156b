// Package servers starts the servers that rls asks, for the time of one test and on
// free ports of the loopback interface.
//
// There is a single Redis (StartRedis, StartRedisTLS), a Cluster of six nodes
// (StartCluster), a Sentinel set (StartSentinel), PostgreSQL (StartPostgres), and an
// HTTP endpoint with customers (StartCustomers). A Proxy makes the faults of a
// network on the connections of one server (StartProxy). An Authority makes
// certificates. Every Redis has a user with all rights, whatever rights its other
// users have; see RedisServer.Do.
//
// SLIDEGATE_TEST_REDIS names another binary than redis-server. Redis is 6.2 or later,
// or a server that takes the same options.
package servers
