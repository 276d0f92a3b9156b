package policy

import "github.com/slidegate/slidegate/pkg/descriptors"

// Canonical returns the value of an entry in the one form that rules and requests
// are compared in: of a client address, IPv4 as such and without a zone. Other
// values are as they are.
func Canonical(e descriptors.Entry) string { return canonical(e) }
