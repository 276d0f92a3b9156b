package config

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envLoadOnce); dir != "" {
		loadOnce(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
