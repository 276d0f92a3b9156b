// Package operate and the packages in it answer what operators ask a running service. They change
// nothing but what an operator resets, and no request waits for them. Read them in this order:
//
//   - insight: who is denied, what is used, and resets.
//   - admin and console: its API and its pages for people; client asks the API, tables shows answers.
//   - metrics, rates, calls and tracing: what is counted, measured and traced.
//   - redislog: prints a log that Redis holds; docs: serves the manual.
//
// No package here decides a request.
package operate
