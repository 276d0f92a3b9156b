// Package stack starts an application, rls and an Envoy before both, and has the clients and
// requests that end-to-end tests share.
package stack
