package main

import "github.com/slidegate/slidegate/internal/migrate/compat"

// dropInText returns the variables of envoyproxy/ratelimit and what they become.
func dropInText() (string, error) { return written("drop-in") + compat.Table(), nil }
