package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// usual are the settings that the page shows first.
var usual = strings.Fields(`
grpc.address http.address admin.address admin.token_file metrics.address log.level log.format
rules.path rules.source rules.policy rules.shadow_mode
tiers.source tiers.path tiers.on_error tiers.unknown_key
tiers.postgres.url tiers.postgres.password_file tiers.http.url tiers.http.token_file
store.type store.on_error store.redis.url store.redis.username store.redis.password_file
headers.styles secrets.entries secrets.key_file authz.credentials`)

const settingsAbove = `All settings are optional. Most installations need only the first table.

`

const settingsBetween = `
## Settings for experts

Most installations need none of them.

`

// settingsText returns the tables of all settings.
func settingsText() (string, error) {
	const head = "| setting | default | |\n|---|---|---|\n"
	found := 0
	first, others := head, head
	for _, s := range settings.Describe(settings.Default()) {
		if s.Default != "" {
			s.Default = "`" + s.Default + "`"
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", s.Path, s.Default, s.Doc)
		if slices.Contains(usual, s.Path) {
			first += row
			found++
		} else {
			others += row
		}
	}
	if found != len(usual) {
		return "", fmt.Errorf("%d of %d usual settings exist", found, len(usual))
	}
	return settingsAbove + first + settingsBetween + others, nil
}
