package stores

import (
	"testing"

	"github.com/slidegate/slidegate/internal/config/settings"
)

func TestMasterName(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:hush@h":           "",
		"redis-sentinel://h,i/main":  "master main",
		"rediss-cluster://u:hush@h1": "",
	} {
		s, _, err := settings.Load("", []string{"SLIDEGATE_STORE_REDIS_URL=" + url})
		if err != nil {
			t.Fatal(err)
		}
		if got := masterName(&s.Store.Redis.URL); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
