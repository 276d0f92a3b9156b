// Package gateway tests rls with a real Envoy Gateway. Envoy Gateway runs standalone: it reads
// Gateway API resources from a folder and starts Envoy itself. rls runs as `ratelimit`, with the
// environment that Envoy Gateway gives its rate-limit service in Kubernetes.
//
// `make eg-standalone-test` gets the programs and runs the tests. Without the variable
// SLIDEGATE_TEST_GATEWAY the tests do not run: they need root and Linux, and building Envoy Gateway
// takes minutes.
//
// Envoy Gateway has fixed ports and paths, and two of its ports are also ports of the rate-limit
// service. So the tests run in namespaces of their own, which end with the tests:
//
//   - The node has Envoy Gateway, Envoy, Redis and the application. It is a copy of the machine's
//     root folder with another /etc/hosts and a /certs for Envoy.
//   - The pod has rls. Its root folder has what the container has: /bin/ratelimit and the files that
//     Envoy Gateway mounts. rls cannot write there, and runs as an unprivileged user.
package gateway
