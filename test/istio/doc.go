// Package istio checks the snippets of deploy/integrations with Istio's own library:
//
//   - Istio's resources and its mesh configuration, by the code with which istiod accepts or refuses them. Unlike the
//     schemas of make k8s-validate it looks into the typed_config of an EnvoyFilter;
//   - every custom resource, by the code with which the API server does so: also the rules in CEL that a definition has.
//
// It is a module of its own because Istio is large: the first run compiles for some minutes. `make istio-validate` runs
// it. It is not part of CI.
package istio
