//go:build linux

// Command pause is the first process of a pod's sandbox on the node of these tests: it holds the
// namespaces until a signal ends it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
}
