// Package descriptors matches the descriptors of a request against the rules of a domain. It has
// the [Tree] of keys, values and patterns ("s*"), the intersection of patterns, and the names of
// logs: [AppendKey] escapes and joins their parts, and [ParseKey] takes them apart. It does no I/O,
// reads no clock and imports only the standard library.
//
// # Terms
//
//   - An [Entry] is one key and value, such as ("api_key", "k1").
//   - A [Descriptor] is an ordered list of entries. Envoy sends one or more with each
//     request.
//   - A [Tree] holds the rules of one domain as nested nodes. A node has a key, and one
//     value, a pattern or neither. In a pattern, each "*" stands for any number of bytes. A
//     node with neither takes every value of its key. The caller chooses the type of the
//     rules.
//
// # Matching
//
// Match walks down the tree, one level for each entry. At each level it takes the first of
// these nodes that exists:
//
//  1. the node with the key and the value of the entry;
//  2. of the nodes with the key and a pattern that fits the value, the first in the order
//     of the rules;
//  3. the node with the key and neither.
//
// Match does not go back on that choice. It returns the rule of the node that the last
// entry takes, if that node has a rule. So a rule does not apply to a descriptor with more
// or fewer entries. envoyproxy/ratelimit matches in the same way ("Descriptor list
// definition" in the README of that project), so its files mean the same here.
//
// With the rules
//
//	route=search
//	└── api_key            rule A
//	api_key                rule B
//	route=s*
//	└── api_key            rule C
//
// the descriptor (route=search, api_key=k1) gets A, (api_key=k1) gets B, and
// (route=sell, api_key=k1) gets C. (route=search) gets no rule, because no rule ends there.
//
// # Keys
//
// [AppendKey] turns a hash tag, a rule and an identity into the name of a log in a store.
// It escapes every part, so two different inputs never give the same name; a fuzz test
// searches for such a pair. No key is longer than [MaxKey] bytes, whatever a client sends:
// a SHA-256 replaces the rest of a longer one.
package descriptors
