package transport

import (
	"fmt"
	"os"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(envReference); name != "" {
		if err := serveReference(name, os.Getenv(envProtos)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(process.Main(m))
}
