package config

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/config/settings"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envLoadOnce); dir != "" {
		loadOnce(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func mustLoad(t *testing.T, s settings.Settings) *Generation {
	t.Helper()
	g, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
