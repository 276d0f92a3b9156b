package compat

import "go.yaml.in/yaml/v2"

// PlainValue returns what envoyproxy/ratelimit makes of a YAML scalar without quotes. Its library reads
// YAML 1.1.
func PlainValue(text string) (value any) {
	if yaml.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return value
}
