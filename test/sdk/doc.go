// Package sdk proves that the SDKs of other vendors understand a denial: through a real Envoy they wait
// as long as the limit needs, and give up if that is long. make sdk-test installs and runs them. make
// test has grpc-go alone, in test/limits.
package sdk
