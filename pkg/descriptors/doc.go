// Package descriptors matches what Envoy says of a request against the rules of
// a domain. It is pure: no I/O, no clock, the standard library alone.
//
// # Terms
//
//   - An [Entry] is one key and value, such as ("api_key", "k1").
//   - A [Descriptor] is an ordered list of entries. Envoy sends one or more with
//     each request.
//   - A [Tree] holds the rules of one domain as nested nodes. A node has a key
//     and, where the rule is not for all of its values, one value or a pattern:
//     a value in which each "*" stands for any number of bytes. The payload of a
//     node, its rule, is of the caller's type.
//
// # Matching
//
// A descriptor walks down the tree, one level an entry. At each level a node
// with the entry's key and value is taken before one with a pattern, the first
// in the order of the rules that fits, and that before a node with the key
// alone. The walk does not go back on that choice. The rule counts only where the
// descriptor's last entry ends on a node that has one: a descriptor longer or
// shorter than the rule is not limited by it. This is how envoyproxy/ratelimit
// matches ("Descriptor list definition" and its examples in that project's
// README), so that its files mean the same here.
//
// With the rules
//
//	route=search
//	└── api_key            rule A
//	api_key                rule B
//	route=s*
//	└── api_key            rule C
//
// the descriptor (route=search, api_key=k1) gets A, (api_key=k1) gets B,
// (route=sell, api_key=k1) gets C, and (route=search) gets none, since no rule
// ends there.
//
// # Keys
//
// [AppendKey] turns a hash tag, a rule and an identity into one string that a
// store can use as the name of a log. Two different inputs never give the same
// string: every part is escaped, and a fuzz test looks for a pair that does. No key is
// longer than [MaxKey] bytes, whatever a client sends: beyond that a SHA-256 takes the
// place of the rest.
package descriptors
