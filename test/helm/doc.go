// Package helm tests the charts of deploy/helm without a cluster: what they render, which values they
// refuse, and that their pages and schemas list every value. The tests that render need a helm:
//
//	SLIDEGATE_TEST_HELM=.tools/bin/helm-v3.22.0 go test ./test/helm
//
// The package test/kubernetes installs the charts on a node.
package helm
