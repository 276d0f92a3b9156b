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
// of their logs. Tests that measure print lines that begin with "figure:". Envoy's timeout is 2 s there and
// store.timeout 500 ms, so that a busy machine is not a fault.
//
// Only schemas were checked for NetworkPolicy, HorizontalPodAutoscaler, cert-manager, the Prometheus
// operator, Istio and agentgateway. Several nodes and zones were not tried. The images are made from
// the same programs, not pulled.
package kubernetes
