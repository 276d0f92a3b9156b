package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/tiers"
)

// usual are the settings in the first table of the page.
var usual = strings.Fields(`
grpc.address http.address admin.address admin.token_file metrics.address log.level log.format
rules.path rules.source rules.policy rules.shadow_mode
tiers.source tiers.path tiers.on_error tiers.unknown_key
tiers.postgres.url tiers.postgres.password_file tiers.http.url tiers.http.token_file
store.type store.on_error store.redis.url store.redis.username store.redis.password_file
headers.styles secrets.entries secrets.key_file authz.credentials`)

const (
	expertSettings = "\n## Settings for experts\n\nMost installations need none of them.\n\n"
	tiersKeys      = "\n## Keys of a tiers file\n\n[customers.md](../customers.md) has examples.\n\n| key | meaning |\n|---|---|\n"
)

// settingsText returns the tables of all settings, of the keys of a tiers file and of the variables
// of OpenTelemetry.
func settingsText() (string, error) {
	var first, others []settings.Setting
	for _, s := range settings.Describe(settings.Default()) {
		if slices.Contains(usual, s.Path) {
			first = append(first, s)
		} else {
			others = append(others, s)
		}
	}
	if len(first) != len(usual) {
		return "", fmt.Errorf("%d of %d usual settings exist", len(first), len(usual))
	}
	keys := tiersKeys
	for _, k := range tiers.Keys() {
		keys += fmt.Sprintf("| %s | %s |\n", code(k.Path), k.Doc)
	}
	return written("settings") + settingsTable(first) + expertSettings + settingsTable(others) + keys + written("traces"), nil
}

// settingsTable returns a table. Settings with the same text and default share a row.
func settingsTable(all []settings.Setting) string {
	text := "| setting | default | |\n|---|---|---|\n"
	seen := make(map[settings.Setting]bool)
	for i, s := range all {
		names := code(s.Path)
		same := settings.Setting{Default: s.Default, Doc: s.Doc}
		if seen[same] {
			continue
		}
		seen[same] = true
		for _, other := range all[i+1:] {
			if other.Default == s.Default && other.Doc == s.Doc {
				names += ", " + code(other.Path)
			}
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", names, code(s.Default), s.Doc)
	}
	return text
}
