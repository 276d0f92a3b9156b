// Package check proves that rls check finds what is wrong between a real Envoy and a real rls, and
// raises no false alarm. A fault is a small change of a file of the folder envoy.
package check
