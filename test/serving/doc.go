// Package serving proves that rls answers on each transport, over TLS and sockets, through
// reloads, restarts and shutdown.
package serving
