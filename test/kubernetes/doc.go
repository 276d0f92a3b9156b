// Package kubernetes holds the end-to-end tests of deploy/kubernetes, deploy/helm and of Envoy
// Gateway, on a real Kubernetes node. They run only on the node that the command in the folder node
// starts:
//
//	make k8s-test
//	make k8s-test RUN=TestSidecar    # only some
//	make k8s-node                    # a shell on the node
//	make eg-test                     # Envoy Gateway, which the node does not have otherwise
//	make integrations-test           # Contour and kgateway
//
// Each test has a namespace of its own, which is removed afterwards. Tests use kubectl, as an operator
// does, and send requests through Envoy. If a test fails, it prints the pods, their events and the end
// of their logs.
package kubernetes
