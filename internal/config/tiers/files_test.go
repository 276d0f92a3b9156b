package tiers_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/configtest"
)

// loadTiersFile loads a tiers file beside the built-in rules.
func loadTiersFile(t *testing.T, file string) error {
	t.Helper()
	s := settings.Default()
	s.Tiers.Path = file
	g, err := config.Load(s)
	if err != nil && g != nil {
		t.Errorf("%s: got a generation beside the error", file)
	}
	return err
}

// TestBadTiers compares the problems of every file of testdata/bad with those that are
// wanted.
func TestBadTiers(t *testing.T) { configtest.BadFiles(t, 30, loadTiersFile) }

// TestGoodTiers loads every file of testdata/good.
func TestGoodTiers(t *testing.T) { configtest.GoodFiles(t, loadTiersFile) }
