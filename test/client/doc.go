// Package client tests the module client against rls behind Envoy. It is a module of its own, so that
// the module client requires only the standard library.
package client
