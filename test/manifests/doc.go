// Package manifests checks what deploy/ has for Kubernetes, without a cluster:
//
//   - kustomize and helm render every kustomization and every chart, each chart with several values;
//   - each object fits the schemas of every supported version of Kubernetes, or of its custom
//     resource. Unknown fields and kinds without a schema are errors;
//   - each pod keeps the policies of this package, such as a user that is not root;
//   - each file of rules next to the snippets for other control planes has a limit for the
//     descriptors that the snippet sends.
//
// `make k8s-validate` gets the programs and the schemas, and runs all tests. Without the variables
// SLIDEGATE_TEST_KUSTOMIZE, SLIDEGATE_TEST_HELM and SLIDEGATE_TEST_SCHEMAS only the tests run that need
// neither.
package manifests
