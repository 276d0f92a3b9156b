package main

import (
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/migrate/compat"
)

// dropInText returns the variables of envoyproxy/ratelimit and what they become.
func dropInText() (string, error) {
	var out strings.Builder
	out.WriteString(written("drop-in"))
	for _, g := range compat.Table() {
		fmt.Fprintf(&out, "\n## %s\n\n| variable | default | becomes |\n|---|---|---|\n", g.Title)
		for _, v := range g.Variables {
			fmt.Fprintf(&out, "| %s | %s | %s |\n", code(v.Name), code(v.Default), v.Becomes)
		}
	}
	return out.String(), nil
}
